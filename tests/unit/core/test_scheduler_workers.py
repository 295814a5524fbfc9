"""Which worker is granted jobs, how many, and what it hears of jobs that wait."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.scheduler_log import QUEUE, SchedulerLog, claimed, keys, ready_job, said
from tests.support.stage_log import Out


def kinds(outs: Sequence[Out]) -> list[str]:
    return [out.kind for out in outs]


def test_a_worker_that_divides_its_room_hears_where_jobs_wait_for_it() -> None:
    log = SchedulerLog(strategy="drr", weights={"a": 3, "b": 2}, max_concurrent_per_key=1)
    assert kinds(log.beat(capacity=0, divided=True)) == []
    log.ready("a", "a", "b", "c")
    [told] = log.beat(capacity=0, divided=True)
    assert told.value == {"consumer_id": "w1", "incarnation": "i1", "partition": 0, "weight": 6}
    assert kinds(log.beat(capacity=0)) == [], "who does not ask is not told"
    assert kinds(log.beat(capacity=0, divided=True, draining=True)) == [], "who leaves, neither"
    # A key at its cap waits for no room.
    outs = log.beat(capacity=1, divided=True)
    assert keys(outs) == "a"
    assert [out.value["weight"] for out in outs if out.kind == "jobs_waiting"] == [3]
    outs = log.beat(capacity=2, claims=["0.1"], divided=True)
    assert (keys(outs), kinds(outs)[-1]) == ("b c", "jobs_granted")


def test_room_that_is_taken_back_goes_as_claims_end() -> None:
    log = SchedulerLog()
    log.ready("a", "a", "a", "a", "a")
    log.beat(capacity=3)
    assert claimed(log.beat(capacity=-2, claims=["0.1", "1.1", "2.1"])) == []
    assert claimed(log.ack("0.1")) == []
    assert claimed(log.ack("1.1")) == []
    assert claimed(log.ack("2.1")) == ["3.1"]
    assert claimed(log.beat(capacity=-9, claims=["3.1"])) == []
    assert claimed(log.ack("3.1")) == []
    assert claimed(log.beat(capacity=1)) == ["4.1"]


def test_a_drain_without_room_here_hears_whether_anything_is_left() -> None:
    log = SchedulerLog()
    assert kinds(log.beat(capacity=0, once=True, divided=True)) == ["nothing_ready"]
    log.ready("a")
    assert kinds(log.beat(capacity=0, once=True, divided=True)) == ["jobs_waiting"]
    assert claimed(log.beat(capacity=1, once=True, divided=True)) == ["0.1"]
    log.ack("0.1")
    assert kinds(log.beat(capacity=0, once=True, divided=True)) == ["nothing_ready"]


def test_heartbeats_of_before_a_grant_do_not_take_it_back() -> None:
    log = SchedulerLog(max_deliveries=2)
    log.beat(capacity=1, granted_at_ms=0)
    assert claimed(log.ready("a", "a")) == ["0.1"]
    # Said while nobody scheduled, and folded only now: the grant was not made when it was said.
    for _ in range(20):
        log.now_ms += 1_000
        assert said(log.beat(granted_at_ms=0)) == [], "what is on its way has its room"
    assert said(log.ack("0.1")) == ["job_acked", "job_claimed"]


def test_a_claim_that_runs_out_on_its_way_is_no_delivery() -> None:
    log = SchedulerLog(max_deliveries=2)
    log.beat(granted_at_ms=0, ttl_ms=1_000)
    log.ready("a")
    for _ in range(10):  # said while nobody scheduled, for longer than claims last
        log.now_ms += 600
        outs = log.beat(granted_at_ms=0, ttl_ms=1_000)
        assert "job_dead" not in said(outs)
    claim = next(key for key in log.rows if key.startswith("l:"))
    [held] = log.rows[claim]["claims"]
    has = {"capacity": 0, "claims": [f"0.{held['fence']}"], "granted_at_ms": log.now_ms}
    assert held["delivery"] == 1
    log.beat(**has, ttl_ms=1_000)
    assert said(log.tick(1_000)) == ["claim_expired"], "this one has come, and counts"
    assert log.rows["n:triage:0"]["deliveries"] == 1
    log.assert_replays([2], frozenset({2, 5, 9}))


def test_a_claim_that_a_worker_has_not_though_a_later_one_came_is_released() -> None:
    log = SchedulerLog()
    log.beat(capacity=1, granted_at_ms=0)
    log.ready("a")
    log.now_ms += 500
    log.beat(capacity=1, granted_at_ms=0)
    log.now_ms += 500
    assert claimed(log.ready("a")) == []
    assert claimed(log.beat(capacity=2, granted_at_ms=0)) == ["1.1"]
    has = {"capacity": 1, "claims": ["1.1"], "granted_at_ms": log.now_ms}
    assert said(log.beat(**has)) == []
    assert said(log.beat(**has)) == ["job_released", "job_claimed"]
    log.assert_replays([2], frozenset({2, 4, 6}))


def test_queues_of_a_partition_take_turns_at_the_room_of_a_worker() -> None:
    log = SchedulerLog()
    queues = [QUEUE, "bulk", "quick"]
    for queue in queues:
        jobs = [ready_job(number) for number in range(3)]
        told = {"queue": queue, "source_partition": 0, "first_offset": 0, "next_offset": 3}
        log.add("jobs_ready", {**told, "shard": None, "shards": 1, "jobs": jobs})
    outs, served = log.beat(capacity=1, queues=queues), list[str]()
    for _ in range(9):
        [claim] = [out.value for out in outs if out.kind == "job_claimed"]
        served.append(claim["queue"])
        acks = [{"job_event_id": claim["job_event_id"], "claim_id": claim["claim_id"]}]
        word = {"queue": claim["queue"], "consumer_id": "w1", "incarnation": "i1", "acks": acks}
        outs = log.add("ack_requested", word)
    assert served == ["bulk", "quick", QUEUE] * 3
    log.assert_replays([2], frozenset({3, 5, 6}))


def test_a_silent_worker_is_given_nothing() -> None:
    log = SchedulerLog(worker_ttl_ms=1_000)
    log.beat()
    log.tick(1_000)
    assert said(log.ready("a")) == []


def test_work_spreads_over_the_workers_that_have_room() -> None:
    log = SchedulerLog()
    log.beat("w1", 2)
    log.beat("w2", 2)
    outs = log.ready("a", "a", "a", "a")
    holders = [out.value["consumer_id"] for out in outs if out.kind == "job_claimed"]
    assert sorted(holders) == ["w1", "w1", "w2", "w2"]
