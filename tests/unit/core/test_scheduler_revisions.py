"""A policy that changes keeps credit and counts, and no revision is passed over."""

from __future__ import annotations

import pytest

from streams.core.revision import RevisionGap
from streams.core.scheduler.book import KEY_IDLE_MS
from streams.engine import FoldFailed
from tests.support.revisions import revision
from tests.support.scheduler_log import SchedulerLog, claimed, keys
from tests.support.stage_log import StageLog


def drr(**fields: object) -> SchedulerLog:
    return SchedulerLog(strategy="drr", **fields)


def test_a_policy_change_keeps_credit_and_counts_and_everything_replays() -> None:
    log = drr(weights={"a": 3})
    log.ready(*"aaaaaabbbbbbcccccc")
    log.beat(capacity=5)
    log.policy(strategy="drr", weights={"b": 2}, max_concurrent_per_key=2)
    log.beat(capacity=3, claims=["0.1", "6.1"])
    log.policy(strategy="fifo")
    log.beat("w2", 2)
    log.policy(strategy="drr", fairness_key="binding")
    log.tick(301_000)
    log.beat(capacity=4)
    log.purge()
    for cuts in ([1], [3], [100]):
        log.assert_replays(cuts, frozenset({1, 2, 5, 8}))


def test_a_change_of_dimension_stores_nothing_of_a_queue_that_never_had_a_job() -> None:
    log = drr()
    log.beat()
    log.policy(strategy="drr", fairness_key="binding")
    assert "q:triage" not in log.rows
    log.tick(60_000)
    log.ready("a")
    log.assert_replays([1], frozenset(range(6)))


def deferrals(log: SchedulerLog) -> dict[str, int]:
    return {key["fairness_key"]: key["deferred_total"] for key in log.summary()["keys"]}


def test_deferrals_are_counted_by_the_cap_and_the_dimension_in_force() -> None:
    log = drr(max_concurrent_per_key=1)
    log.ready(*"aaabbb")
    held = claimed(log.beat(capacity=3))  # a, then b past it, then one look in vain
    assert deferrals(log) == {"a": 2, "b": 1}
    held += claimed(log.policy(strategy="drr", max_concurrent_per_key=2))
    assert len(held) == 3
    assert deferrals(log) == {"a": 2, "b": 1}, "nobody was at the cap that is in force"
    log.policy(strategy="drr", max_concurrent_per_key=1)  # there is no room, and no look
    log.beat(capacity=1, claims=held)
    assert deferrals(log) == {"a": 3, "b": 2}
    log.policy(strategy="drr", max_concurrent_per_key=1, fairness_key="binding")
    assert deferrals(log) == {"triage@v1": 1}
    log.beat(capacity=1, claims=held)
    assert deferrals(log) == {"triage@v1": 2}
    log.policy(strategy="drr", max_concurrent_per_key=1)
    assert deferrals(log) == {"a": 4, "b": 3}
    log.assert_replays([3], frozenset({1, 3, 5, 8}))


def test_keys_of_a_dimension_that_comes_back_have_the_credit_that_they_had() -> None:
    log = drr(quantum=3)
    log.ready(*"ab" * 30)
    done = claimed(log.beat(capacity=3))
    before = {key["fairness_key"]: key["deficit"] for key in log.summary()["keys"]}
    assert before == {"a": 1, "b": 2}
    log.policy(strategy="drr", quantum=3, fairness_key="binding")
    for _ in range(5):
        done = claimed(log.ack(*done))
    log.policy(strategy="drr", quantum=3)
    assert {key["fairness_key"]: key["deficit"] for key in log.summary()["keys"]} == before
    assert keys(log.ack(*done)) == "a b b"
    log.assert_replays([3], frozenset({1, 4, 7, 9}))


def test_a_key_of_a_dimension_of_before_is_forgotten_and_its_namesake_stays() -> None:
    log = drr(starvation_age_ms=0)
    log.ready("x", binding_key="x")
    log.policy(strategy="drr", fairness_key="binding", starvation_age_ms=0)
    log.tick(KEY_IDLE_MS)
    assert [key for key in log.rows if key.startswith("f:")] == ["f:triage:binding:x"]
    assert claimed(log.beat()) == ["0.1"]
    log.assert_replays([1], frozenset({2, 4}))


# ---------------------------------------------------------------------- revisions
def test_a_missing_revision_stops_the_partition_and_nothing_is_granted_meanwhile() -> None:
    log = drr()
    log.ready("a")
    log.revision += 1
    before = log.rows
    with pytest.raises(FoldFailed, match="revision 3 follows 1: 2 is missing") as failed:
        log.policy(strategy="fifo")
    assert isinstance(failed.value.__cause__, RevisionGap)
    assert log.rows == before


def test_a_repeated_or_an_older_revision_does_nothing() -> None:
    log = drr(weights={"a": 3})
    log.policy(strategy="drr", weights={"a": 2})
    before = log.rows
    for number in (0, 1):
        log.revision = number
        assert log.policy(strategy="fifo") == []
    assert log.rows == before
    assert log.summary()["policy"]["weights"] == {"a": 2}


def test_a_mailbox_that_is_younger_than_the_registry_begins_at_the_revision_in_force() -> None:
    log = StageLog("scheduler")
    log.add("revision_published", revision(7))
    log.add("revision_published", revision(8))
    assert log.rows["revision"]["revision"] == 8
    with pytest.raises(FoldFailed, match="revision 10 follows 8: 9 is missing"):
        log.add("revision_published", revision(10))
