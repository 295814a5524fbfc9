"""Turns judged on the log: what is fair is passed in silence, each planted unfairness is found."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from streams.audit.fairness_log import cause_of
from streams.audit.log import LogRecord
from streams.core.scheduler import selection
from streams.core.scheduler.ring import Ring
from streams.core.wire import SchedulerPolicy
from tests.support.fair_turns import CLAIMS, REQUESTS, assert_fair, memory_log, unfair
from tests.support.scheduler_log import SchedulerLog, claimed
from tests.support.stage_log import Out


def drr(**fields: object) -> SchedulerLog:
    return SchedulerLog(strategy="drr", starvation_age_ms=0, **fields)


def work(log: SchedulerLog, turns: int, *, slots: int = 2, came: str = "") -> None:
    """Jobs are granted, done and followed by as many; `came` are the keys of those that come."""
    for turn in range(turns):
        if came:
            log.ready(*came)
        claims = claimed(log.beat(capacity=slots, claims=[]))
        claims += claimed(log.ack(*claims))
        log.ack(*claims)
        log.now_ms += turn


def told(log: SchedulerLog) -> str:
    found, notes = unfair(memory_log(log))
    assert notes == []
    return found[0] if found else ""


# ---------------------------------------------------------------------- what is fair
@pytest.mark.parametrize("weights", [{}, {"a": 3}, {"a": 7, "b": 2, "c": 1}])
@pytest.mark.parametrize("quantum", [1, 2, 5])
def test_turns_of_keys_that_wait_throughout_are_fair(weights: dict[str, int], quantum: int) -> None:
    log = drr(weights=weights, quantum=quantum)
    log.ready(*"abc" * 120)
    work(log, 60)
    assert_fair(log)


def test_keys_that_come_and_go_are_judged_with_those_that_were_there_as_long() -> None:
    log = drr(weights={"a": 3})
    log.ready(*"ab" * 60)
    work(log, 25, came="c")
    work(log, 25, came="dde")
    assert_fair(log)


def test_policies_that_change_begin_new_runs_and_credit_may_be_of_an_earlier_one() -> None:
    log = drr(quantum=20)
    log.ready(*"ab" * 200)
    work(log, 7)
    log.policy(strategy="drr", starvation_age_ms=0, quantum=1)
    work(log, 40)
    log.policy(strategy="fifo")
    work(log, 5)
    log.policy(strategy="drr", starvation_age_ms=0, fairness_key="binding")
    work(log, 5)
    log.policy(strategy="drr", starvation_age_ms=0, weights={"b": 4})
    work(log, 40)
    assert_fair(log)


@pytest.mark.parametrize("mode", ["job", "key"])
def test_selections_by_age_do_not_count(mode: str) -> None:
    log = SchedulerLog(strategy="drr", starvation_age_ms=5_000, starvation_mode=mode)
    log.ready(*"a" * 60)
    log.now_ms += 10_000
    log.ready(*"b" * 60, occurred_at_ms=log.now_ms)
    work(log, 20)
    log.now_ms += 10_000
    work(log, 20)
    assert_fair(log)


def test_a_key_at_its_cap_waits_for_nothing() -> None:
    log = drr(max_concurrent_per_key=1)
    log.ready(*"aaaaaaaaaaaabbbbbbbbbbbbbbbb")
    held = claimed(log.beat(capacity=2))
    mine = [each for each in held if int(each.partition(".")[0]) < 12]
    for _ in range(10):
        log.beat(capacity=1, claims=mine)
        log.ack(*claimed(log.ack(*[each for each in held if each not in mine])))
    assert_fair(log)


def test_jobs_that_come_with_a_record_that_fires_a_timer_did_not_wait_before() -> None:
    log = drr()
    log.ready(*"a" * 40)
    log.beat(capacity=20, ttl_ms=1_000)
    log.now_ms += 1_000
    outs = log.ready(*"b" * 40)
    assert sum(out.kind == "claim_expired" for out in outs) == 20
    work(log, 30)
    assert_fair(log)


def test_a_repeat_of_the_relay_brings_nothing() -> None:
    log = drr()
    log.ready(*"ab" * 20)
    work(log, 5)
    log.records.append(log.records[1]._replace(offset=len(log.records)))
    work(log, 5)
    assert_fair(log)


# ---------------------------------------------------------------------- what is not
def ignoring_weights(_policy: SchedulerPolicy, _key: str, /) -> int:
    return 1


def doubling_for_c(policy: SchedulerPolicy, key: str, /) -> int:
    return WEIGHT_OF(policy, key) * (2 if key == "c" else 1)


WEIGHT_OF = selection.weight_of
AFTER = Ring.after


def passing_over_b(ring: Ring, name: str | None, /) -> str | None:
    found = AFTER(ring, name)
    if found == "b":
        found = AFTER(ring, "b")
    return None if found == "b" else found


@pytest.mark.parametrize(
    ("target", "name", "mutant", "key"),
    [
        pytest.param(selection, "weight_of", ignoring_weights, "[ab]", id="a weight is ignored"),
        pytest.param(selection, "weight_of", doubling_for_c, "c", id="one has twice the quantum"),
        pytest.param(Ring, "after", passing_over_b, "b", id="a key is passed over"),
    ],
)
@pytest.mark.parametrize("came", ["", "d", "abcde"])
def test_a_planted_unfairness_is_found(
    monkeypatch: pytest.MonkeyPatch,
    target: object,
    name: str,
    mutant: Callable[..., object],
    key: str,
    came: str,
) -> None:
    monkeypatch.setattr(target, name, mutant)
    log = drr(weights={"a": 3, "c": 2})
    log.ready(*"aabbcc" * 100)
    work(log, 80, came=came)
    assert re.match(
        rf"{CLAIMS[0]}/0/\d+: job_claimed of job \d+: fairness key '{key}' got \d+ of \d+ "
        r"selections since \S+, its share is [\d.]+ \(weight \d of \d+\), expected within \d of it",
        told(log),
    )


def test_who_is_passed_over_is_found_where_most_keys_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Ring, "after", passing_over_b)
    log = drr()
    log.ready(*"ab" * 40)
    for number in range(120):
        log.ready(f"guest-{number}", f"guest-{number + 1}")
        log.ack(*claimed(log.beat(capacity=3, claims=[])))
    assert re.search("fairness key '[ab]' got", told(log))


def test_a_job_selected_under_a_key_that_is_not_its_own_is_found() -> None:
    log = drr()
    log.ready("a", "b")
    outs = log.beat(capacity=1)
    kafka = memory_log(log)
    [record] = kafka.topics[CLAIMS[0]][0]
    forged = {**next(out.value for out in outs if out.kind == "job_claimed"), "fairness_key": "b"}
    value = log.stage.codec.encode("job_claimed", forged)
    kafka.topics[CLAIMS[0]][0] = [record._replace(value=value)]
    [found], _ = unfair(kafka)
    assert found.endswith("selected under key 'b', its job is of key 'a'")


def promoted(outs: list[Out], log: SchedulerLog) -> str:
    """What is told when the first claim says that its age selected it."""
    kafka = memory_log(log)
    records = kafka.topics[CLAIMS[0]][0]
    said = next(out.value for out in outs if out.kind == "job_claimed")
    value = log.stage.codec.encode("job_claimed", {**said, "promoted": True})
    records[-1] = records[-1]._replace(value=value)
    [found], _ = unfair(kafka)
    return found.partition("selected for ")[2]


def test_a_selection_by_an_age_that_was_not_reached_is_found() -> None:
    log = drr()
    log.ready("a")
    assert promoted(log.beat(capacity=1), log) == (
        "its age, which the policy in force knows nothing of"
    )
    log = SchedulerLog(strategy="drr", starvation_age_ms=5_000)
    log.ready("a")
    log.now_ms += 4_999
    assert promoted(log.beat(capacity=1), log) == "its age of 4999 ms, expected at least 5000"
    log = SchedulerLog(strategy="drr", starvation_age_ms=5_000, starvation_mode="key")
    log.ready("a", "a")
    [first] = claimed(log.beat(capacity=1))
    log.now_ms += 4_000
    assert promoted(log.ack(first), log) == (
        "its key's age, which was served 4000 ms ago, expected at least 5000"
    )


# ---------------------------------------------------------------------- logs without beginning
def test_a_mailbox_without_its_beginning_is_judged_from_there_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Ring, "after", passing_over_b)
    log = drr()
    log.ready(*"abc" * 20)
    work(log, 10)
    cut = len(log.records)
    log.ready(*"abc" * 60)
    work(log, 60)
    kafka = memory_log(log)
    kafka.cut(REQUESTS, cut)
    found, notes = unfair(kafka)
    assert "fairness key 'b' got 0 of" in found[0]
    since = f"{REQUESTS[0]}/0/{cut}"
    assert notes == [
        f"the turns of triage are judged from {since} on: what was before is not there"
    ]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_wherever_a_log_begins_what_is_fair_is_passed(cut: int) -> None:
    log = drr(weights={"b": 3})
    log.ready(*"abcabcab" * 10)
    work(log, 8, came="c")
    log.policy(strategy="drr", starvation_age_ms=0, weights={"a": 2})
    work(log, 12, came="ab")
    kafka = memory_log(log)
    kafka.cut(REQUESTS, cut)
    assert unfair(kafka)[0] == []
    kafka = memory_log(log)
    kafka.cut(CLAIMS, cut)
    assert unfair(kafka)[0] == []


def test_under_a_cap_a_log_without_its_beginning_is_not_judged() -> None:
    log = drr(max_concurrent_per_key=3)
    log.ready(*"ab" * 30)
    held = claimed(log.beat(capacity=5))
    cut = len(log.records)
    for _ in range(12):
        held = held[1:] + claimed(log.ack(held[0]))
    kafka = memory_log(log)
    kafka.cut(REQUESTS, cut)
    assert unfair(kafka)[0] == []


@pytest.mark.parametrize("said", ["0/1", "0/x/0", "²/1/0", "0/1/²", f"0/{'9' * 5_000}/0", "-1/0/0"])
def test_a_cause_that_is_no_place_is_none(said: str) -> None:
    record = LogRecord(0, 0, b"k", b"", [("cause", f"worker.requests/{said}".encode())])
    assert cause_of(record, "worker.requests") is None
