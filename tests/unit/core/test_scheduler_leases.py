"""Claims of jobs, from the grant to their end, by SEMANTICS 5.6, as decided in DESIGN 7."""

from __future__ import annotations

import pytest

from streams.core.scheduler import requests
from tests.support.scheduler_log import SchedulerLog, claimed, keys, ready_job, said


def test_5_02_a_job_is_claimed_acked_and_gone() -> None:
    log = SchedulerLog()
    log.ready("a")
    outs = log.beat()
    assert [out.kind for out in outs] == ["job_claimed", "jobs_granted"]
    granted = outs[1].value
    assert (granted["consumer_id"], granted["jobs"][0]["body"]) == ("w1", b"body")
    assert log.summary()["in_flight"] == 1
    assert said(log.ack("0.1")) == ["job_acked"]
    found = log.summary()
    assert (found["ready"], found["in_flight"], found["acked"]) == (0, 0, 1)
    assert not [key for key in log.rows if key[0] in "jln"]
    assert [out.value["reason"] for out in log.ack("0.1")] == ["unknown_job"]


def test_5_10_and_5_12_an_expired_claim_is_superseded_and_its_holder_refused() -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat(ttl_ms=1_000)
    log.beat("w2", 2)
    assert said(log.tick(999)) == []
    assert said(log.tick(1)) == ["claim_expired", "job_claimed"]
    refused = log.ack("0.1")[0].value
    assert (refused["reason"], refused["current_claim_id"]) == ("superseded", "0.2")
    assert [out.value["reason"] for out in log.renew("0.1")] == ["superseded"]
    assert said(log.ack("0.2", worker="w2")) == ["job_acked"]


def test_5_09_an_expired_claim_that_nobody_superseded_still_counts() -> None:
    log = SchedulerLog()
    log.ready("a", "a")
    log.beat(capacity=2, ttl_ms=1_000)
    log.beat(capacity=0, claims=["0.1", "1.1"], draining=True)
    assert said(log.tick(1_000)) == ["claim_expired"] * 2
    assert said(log.renew("0.1")) == ["claim_renewed"]
    assert said(log.ack("1.1")) == ["job_acked"]
    assert said(log.ack("0.1")) == ["job_acked"]


def test_a_claim_that_ran_out_comes_not_back_into_force_above_its_keys_cap() -> None:
    log = SchedulerLog(max_concurrent_per_key=1)
    log.ready("a", priority="low")
    log.beat(ttl_ms=1_000)
    log.ready("a", priority="high")
    log.tick(1_000)
    assert claimed(log.beat("w2")) == ["1.1"]
    assert [out.value["reason"] for out in log.renew("0.1")] == ["not_claimed"]
    assert log.summary()["in_flight"] == 1
    assert said(log.ack("0.1")) == ["job_acked"], "what is done is done"
    assert said(log.ack("1.1", worker="w2")) == ["job_acked"]


@pytest.mark.parametrize(("asked_ms", "lasts_ms"), [(-5, 100), (2**62, 86_400_000)])
def test_a_claim_lasts_neither_no_time_nor_for_ever(asked_ms: int, lasts_ms: int) -> None:
    log = SchedulerLog()
    log.ready("a")
    [claim] = [out.value for out in log.beat(ttl_ms=asked_ms) if out.kind == "job_claimed"]
    assert claim["expires_at_ms"] - claim["claimed_at_ms"] == lasts_ms
    [renewed] = [out.value for out in log.renew("0.1", ttl_ms=asked_ms)]
    assert renewed["expires_at_ms"] - renewed["renewed_at_ms"] == lasts_ms


def ran_out(*tenants: str) -> SchedulerLog:
    """Jobs whose claims have merely run out, and a worker that takes nothing more."""
    log = SchedulerLog(strategy="drr")
    log.ready(*tenants)
    claims = claimed(log.beat(capacity=len(tenants), ttl_ms=1_000))
    log.beat(capacity=0, claims=claims, draining=True)
    assert said(log.tick(1_000)) == ["claim_expired"] * len(tenants)
    return log


def test_of_a_claim_that_ran_out_only_its_holder_may_speak_and_only_of_the_last_one() -> None:
    log = ran_out("a")
    assert [out.value["reason"] for out in log.ack("0.1", worker="w2")] == ["not_claimed"]
    assert [out.value["reason"] for out in log.renew("0.1", worker="w2")] == ["not_claimed"]
    assert claimed(log.beat(ttl_ms=1_000)) == ["0.2"]
    log.beat(capacity=0, claims=["0.2"], draining=True)
    assert said(log.tick(1_000)) == ["claim_expired"]
    assert [out.value["reason"] for out in log.ack("0.1")] == ["not_claimed"]
    assert said(log.ack("0.2")) == ["job_acked"]


@pytest.mark.parametrize("how", ["release", "incarnation"])
def test_a_claim_that_was_given_back_or_taken_counts_no_more(how: str) -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat()
    log.beat(capacity=-1, claims=["0.1"])
    log.release("0.1") if how == "release" else log.beat(capacity=0, incarnation="i2")
    assert log.summary()["ready"] == 1
    assert [out.value["reason"] for out in log.ack("0.1")] == ["not_claimed"]
    assert [out.value["reason"] for out in log.renew("0.1")] == ["not_claimed"]


def test_a_key_whose_only_job_was_acked_late_has_no_turn() -> None:
    log = ran_out("b")
    assert said(log.ack("0.1")) == ["job_acked"]
    log.ready("a", "a", "c")
    assert keys(log.beat("w2", 3)) == "c a a"


def test_a_job_whose_claim_came_back_and_ran_out_again_is_granted_in_its_place() -> None:
    log = ran_out("a", "a", "a")
    assert said(log.renew("1.1", ttl_ms=1_000)) == ["claim_renewed"]
    assert said(log.tick(1_000)) == ["claim_expired"]
    assert claimed(log.beat("w2", 3)) == ["0.2", "1.2", "2.2"]
    log.assert_replays([2], frozenset({2, 4, 5}))


def test_5_13_a_purge_takes_only_what_nobody_holds() -> None:
    log = SchedulerLog()
    log.ready("a", "a")
    log.beat()
    outs = log.purge()
    assert [out.kind for out in outs] == ["job_purged", "purge_answered"]
    assert outs[1].value["purged"] == 1
    assert said(log.ack("0.1")) == ["job_acked"]


def test_5_18_a_drain_gets_no_job_twice() -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat(once=True)
    assert said(log.release("0.1")) == ["job_released"]
    assert [out.kind for out in log.beat(once=True)] == ["nothing_ready"]
    assert claimed(log.beat("w2", incarnation="other")) == []
    assert claimed(log.beat(once=True, draining=True)) == ["0.2"]


@pytest.mark.parametrize("how", ["silent", "restarted"])
def test_what_a_drain_gave_back_is_ready_again_once_that_drain_is_gone(how: str) -> None:
    log = SchedulerLog(worker_ttl_ms=1_000)
    log.ready("a")
    log.beat(once=True)
    log.release("0.1")
    assert log.summary()["delayed"] == 1
    if how == "silent":
        log.now_ms += 500
        assert claimed(log.beat("w2")) == []
        assert claimed(log.tick(500)) == ["0.2"]
    else:
        assert claimed(log.beat(once=True, incarnation="i2")) == ["0.2"]


def test_what_a_drain_gives_back_as_it_leaves_is_ready_at_once() -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat(once=True)
    log.beat(capacity=0, claims=["0.1"], once=True, draining=True)
    log.beat("w2", incarnation="other")
    assert said(log.release("0.1")) == ["job_released", "job_claimed"]


def test_a_purge_takes_what_waits_for_a_drain_to_end() -> None:
    log = SchedulerLog()
    log.ready("a", "a")
    log.beat(capacity=2, once=True, ttl_ms=1_000)
    log.beat(capacity=2, claims=["0.1", "1.1"], once=True, ttl_ms=1_000)
    assert said(log.tick(1_000)) == ["claim_expired"] * 2
    assert log.summary()["delayed"] == 2
    outs = log.purge()
    assert said(outs) == ["job_purged"] * 2
    assert [log.summary()[name] for name in ("ready", "delayed", "purged")] == [0, 0, 2]
    assert claimed(log.beat(capacity=2, once=True, draining=True)) == []
    assert [out.value["reason"] for out in log.ack("0.1")] == ["unknown_job"]


def test_a_purge_removes_so_many_at_most_and_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "PURGE_MAX", 3)
    log = SchedulerLog()
    log.ready("a", "a")
    log.beat(capacity=2, once=True)
    log.beat(capacity=-2, claims=["0.1", "1.1"], once=True)
    log.release("0.1", "1.1")
    log.ready("a", "a", "b", "b")
    assert [log.summary()[name] for name in ("ready", "delayed")] == [4, 2]
    for purged in (3, 3, 0):
        outs = log.purge()
        assert (said(outs), outs[-1].value["purged"]) == (["job_purged"] * purged, purged)


def test_a_claim_that_runs_out_leaves_its_worker_no_more_room_than_it_said() -> None:
    log = SchedulerLog()
    log.ready("a", "a", "a")
    log.beat(capacity=2, ttl_ms=1_000)
    # Both have failed: they hold no place, and keep their claims until these run out.
    assert claimed(log.beat(capacity=2, claims=["0.1", "1.1"], ttl_ms=1_000)) == ["2.1"]
    log.renew("2.1")
    assert said(log.tick(1_000)) == ["claim_expired"] * 2 + ["job_claimed"]
    assert claimed(log.ack("2.1")) == ["1.2"]
    assert claimed(log.ack("0.2")) == []


def test_a_repeat_of_the_relay_is_dropped() -> None:
    log = SchedulerLog()
    log.ready("a", "a")
    log.beat(capacity=9)
    log.ack("0.1", "1.1")
    assert log.relay([ready_job(0), ready_job(1), ready_job(2)], 0)[0].value["claim_id"] == "2.1"
    assert log.relay([ready_job(0), ready_job(1)], 0) == []
    assert log.relay([ready_job(2)], 2) == [], "an older repeat makes nothing new again"


def test_a_new_incarnation_releases_the_claims_of_the_one_before() -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat()
    outs = log.beat(incarnation="i2")
    assert said(outs) == ["job_released", "job_claimed"]
    assert outs[1].value["delivery"] == 2, "it may have been what ended the worker"
    assert log.beat(incarnation="i2", claims=["0.2"]) == []
    [told] = log.beat()
    assert (told.kind, told.topic) == ("worker_replaced", "worker.deliveries")
    assert told.value == {"consumer_id": "w1", "incarnation": "i1"}
    assert log.beat(draining=True) == [], "who is about to leave needs no word"
    assert [out.value["reason"] for out in log.ack("0.1")] == ["superseded"]


def test_a_claim_that_two_heartbeats_do_not_list_is_released() -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat()
    assert said(log.beat(seq=2)) == []
    assert said(log.beat(seq=2)) == [], "that was the same one again"
    outs = log.beat(seq=3, granted_at_ms=log.now_ms)
    assert said(outs) == ["job_released", "job_claimed"], "the very grant has come to it"
    assert outs[1].value["delivery"] == 2, "a grant that no worker can read ends some time"


def test_a_job_dies_of_too_many_deliveries() -> None:
    log = SchedulerLog(max_deliveries=2)
    log.ready("a")
    log.beat(ttl_ms=1_000)
    log.beat(capacity=1, ttl_ms=1_000, claims=["0.1"])
    assert said(log.tick(1_000)) == ["claim_expired", "job_claimed"]
    outs = log.tick(1_000)
    assert said(outs) == ["claim_expired", "job_dead"]
    assert outs[1].value["body"] == b"body"
    assert log.summary()["dead"] == 1


def test_a_full_queue_refuses_on_record() -> None:
    log = SchedulerLog(max_waiting=2)
    outs = log.ready("a", "a", "a")
    assert [(out.kind, out.value["reason"]) for out in outs] == [("job_dead", "queue_full")]
