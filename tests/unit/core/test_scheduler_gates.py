"""Gates after selection: which of the claimed jobs start, which wait, and which never do."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from streams.core.bounds import DURATION_MS_MAX
from streams.core.scheduler import gate_asks
from tests.support.scheduler_log import SchedulerLog, admitted, answers, claimed, ready_job, said
from tests.support.stage_log import START_MS, Out

TTL_MS = 300_000
FOREVER_MS = 80_000_000


def gated(jobs: int, **gates: Any) -> SchedulerLog:
    """A queue whose one trigger has these gates, and a worker that was granted the jobs."""
    log = SchedulerLog(worker_ttl_ms=FOREVER_MS)
    log.register(triage=gates)
    log.ready(*["a"] * jobs)
    assert len(claimed(log.beat(capacity=jobs))) == jobs
    return log


def first(jobs: int) -> list[str]:
    """The first claims of so many jobs."""
    return [f"{number}.1" for number in range(jobs)]


def granted(outs: list[Out]) -> dict[str, bool]:
    """What a worker was granted: claims, and whether each may start at once."""
    return {
        job["claim_id"]: job["admitted"]
        for out in outs
        if out.kind == "jobs_granted"
        for job in out.value["jobs"]
    }


def skips(outs: list[Out]) -> dict[str, str]:
    """Jobs that gates have skipped, each with its gate; the response comes before the ack."""
    acks = [out for out in outs if out.kind == "job_acked" and out.value["skipped_by"]]
    responses = [out for out in outs if out.kind == "job_response"]
    assert [out.value["claim_id"] for out in acks] == [out.value["claim_id"] for out in responses]
    for ack, response in zip(acks, responses, strict=True):
        assert outs.index(response) < outs.index(ack)
        assert response.value["outcome"] == "skipped"
        assert response.value["skipped_by"] == ack.value["skipped_by"]
    return {out.value["job_event_id"]: out.value["skipped_by"] for out in acks}


def replays(log: SchedulerLog) -> None:
    log.assert_replays([2], reload_at=frozenset(range(1, 40)))


def test_concurrency_admits_as_many_as_it_says_and_the_rest_wait_without_a_claim() -> None:
    log = gated(3, concurrency={"max": 1})
    outs = log.ask(*first(3))
    assert answers(outs) == "admitted delayed delayed"
    assert admitted(outs) == ["0.1"]
    found = log.summary()
    assert (found["in_flight"], found["delayed"], found["ready"]) == (1, 2, 0)
    replays(log)


def test_who_waited_longest_gets_the_slot_that_an_ack_frees_and_need_not_ask_again() -> None:
    log = gated(3, concurrency={"max": 1})
    log.ask("1.1", "0.1", "2.1")
    outs = log.ack("1.1")
    assert granted(outs) == {"0.2": True}
    assert admitted(outs) == ["0.2"]
    (claim,) = [out.value for out in outs if out.kind == "job_claimed"]
    assert claim["delivery"] == 1, "to wait at a gate is no delivery"
    assert granted(log.ack("0.2")) == {"2.2": True}
    assert said(log.ack("2.2")) == ["job_acked"]
    assert not [key for key in log.rows if key.startswith(("a:", "n:", "j:"))]
    replays(log)


@pytest.mark.parametrize("how", ["release", "expire", "incarnation", "dead"])
def test_a_slot_is_given_back_with_the_lease(how: str) -> None:
    log = SchedulerLog(worker_ttl_ms=FOREVER_MS, max_deliveries=1 if how == "dead" else 0)
    log.register(triage={"concurrency": {"max": 1}})
    log.ready("a", "a")
    log.beat(capacity=2)
    log.ask("0.1", "1.1")
    log.beat("w2", capacity=1)
    match how:
        case "release":
            outs = log.release("0.1")
        case "incarnation":
            outs = log.beat(capacity=1, incarnation="i2")
        case _:
            outs = log.tick(after_ms=TTL_MS)
    assert "1.2" in admitted(outs)
    assert len(admitted(outs)) == 1, "the other one waits for its turn"
    assert ("job_dead" in said(outs)) == (how == "dead")
    replays(log)


def test_a_job_that_lost_its_slot_with_its_claim_waits_at_its_old_place() -> None:
    log = gated(3, concurrency={"max": 1})
    log.ask(*first(3))
    assert granted(log.release("0.1")) == {"1.2": True}
    assert granted(log.ack("1.2")) == {"0.2": True}, "it asked before the third"
    replays(log)


def test_priority_orders_those_that_wait() -> None:
    log = gated(3, concurrency={"max": 1}, priority={"order": ["urgent", "usual"]})
    log.ask("0.1", priority="usual")
    log.ask("1.1", priority="usual")
    log.ask("2.1", priority="urgent")
    assert granted(log.ack("0.1")) == {"2.2": True}
    replays(log)


def test_keys_have_slots_of_their_own() -> None:
    log = gated(3, concurrency={"max": 1, "key": "event.tenant_id"})
    assert answers(log.ask("0.1", concurrency="x")) == "admitted"
    assert answers(log.ask("1.1", concurrency="y")) == "admitted"
    assert answers(log.ask("2.1", concurrency="x")) == "delayed"
    assert granted(log.ack("1.1")) == {}
    assert granted(log.ack("0.1")) == {"2.2": True}


def test_throttle_starts_so_many_in_a_period_and_the_others_when_they_are_planned() -> None:
    log = gated(5, throttle={"max": 2, "period_ms": 1_000})
    outs = log.ask(*first(5))
    assert answers(outs) == "admitted admitted delayed delayed delayed"
    released = [out.value for out in outs if out.kind == "job_released"]
    assert [each["not_before_ms"] - START_MS for each in released] == [1_000, 1_000, 2_000]
    assert granted(log.tick(after_ms=999)) == {}
    assert granted(log.tick(after_ms=1)) == {"2.2": True, "3.2": True}
    assert granted(log.tick(after_ms=1_000)) == {"4.2": True}
    replays(log)


def test_a_throttle_plans_no_further_than_a_year_ahead() -> None:
    log = gated(3, throttle={"max": 1, "period_ms": DURATION_MS_MAX})
    outs = log.ask(*first(3))
    assert answers(outs) == "admitted delayed lost"
    assert [out.value["reason"] for out in outs if out.kind == "job_dead"] == ["gate_full"]
    replays(log)


def test_throttle_holds_when_no_worker_had_room_at_the_planned_time() -> None:
    log = gated(6, throttle={"max": 1, "period_ms": 1_000})
    log.ask(*first(6))
    log.beat(capacity=0, claims=["0.1"])
    log.now_ms += 60_000
    log.tick()
    starts: list[int] = []
    held = ["0.1"]
    for _ in range(60):
        begun = admitted(log.beat(capacity=5, claims=held))
        held += begun
        starts += [log.now_ms] * len(begun)
        log.now_ms += 100
    assert len(starts) == 5
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert all(gap >= 1_000 for gap in gaps), "what came late does not start at once"
    replays(log)


def test_starts_that_were_planned_for_purged_jobs_move_up() -> None:
    log = gated(6, throttle={"max": 2, "period_ms": 1_000})
    assert answers(log.ask(*first(6))) == "admitted admitted" + " delayed" * 4
    assert said(log.purge()) == ["job_purged"] * 4
    log.ack("0.1", "1.1")
    log.now_ms += 400
    assert claimed(log.ready("a", "a", "a")) == ["6.1", "7.1", "8.1"]
    outs = log.ask("6.1", "7.1", "8.1")
    assert answers(outs) == "delayed delayed delayed", "what has started counts all the same"
    released = [out.value for out in outs if out.kind == "job_released"]
    assert [each["not_before_ms"] - START_MS for each in released] == [1_000, 1_000, 2_000]
    replays(log)


def test_a_rate_limit_skips_what_is_too_much_on_record_and_forgets() -> None:
    log = gated(3, rate_limit={"max": 1, "period_ms": 1_000})
    outs = log.ask("0.1", "1.1")
    assert answers(outs) == "admitted skipped"
    assert skips(outs) == {"1": "rate_limit"}
    (response,) = [out for out in outs if out.kind == "job_response"]
    assert (response.topic, response.key) == ("worker.triage.responses", "1")
    assert response.value["dispatch_id"] == "dispatch-1"
    log.now_ms += 1_000
    assert answers(log.ask("2.1")) == "admitted"
    log.tick(after_ms=5_000)
    assert not [key for key in log.rows if key.startswith("s:")]
    replays(log)


def test_a_rate_limit_counts_a_job_once_however_often_it_is_delivered() -> None:
    log = gated(1, rate_limit={"max": 1, "period_ms": FOREVER_MS})
    log.ask("0.1")
    assert granted(log.release("0.1")) == {"0.2": True}
    replays(log)


def test_singleton_skips_while_one_runs_and_lets_the_one_that_had_it_wait() -> None:
    log = gated(3, singleton={})
    outs = log.ask("0.1", "1.1")
    assert (answers(outs), skips(outs)) == ("admitted skipped", {"1": "singleton"})
    log.beat(capacity=0, claims=["0.1", "2.1"])
    log.ready("a", priority="high")
    assert granted(log.release("0.1")) == {"3.1": False}, "another job takes its room"
    assert answers(log.ask("2.1")) == "admitted"
    assert granted(log.beat(capacity=5, claims=["2.1", "3.1"])) == {}
    assert log.summary()["delayed"] == 1, "it was admitted before: it is not skipped"
    assert granted(log.ack("2.1")) == {"0.2": True}
    replays(log)


def test_debounce_lets_the_last_of_a_burst_go_on_after_its_period() -> None:
    log = gated(3, debounce={"period_ms": 1_000, "key": "event.kind"})
    assert answers(log.ask("1.1", debounce="k")) == "delayed"
    log.now_ms += 500
    outs = log.ask("0.1", debounce="k")
    assert skips(outs) == {"0": "debounce"}, "it was enqueued before the one that waits"
    outs = log.ask("2.1", debounce="k")
    assert (answers(outs), skips(outs)) == ("delayed", {"1": "debounce"})
    assert granted(log.tick(after_ms=999)) == {}
    assert granted(log.tick(after_ms=1)) == {"2.2": True}
    assert log.summary()["acked"] == 2
    replays(log)


def test_debounce_waits_no_longer_than_max_wait() -> None:
    log = gated(2, debounce={"period_ms": 1_000, "max_wait_ms": 1_200, "key": "event.kind"})
    log.ask("0.1", debounce="k")
    log.now_ms += 900
    log.ask("1.1", debounce="k")
    assert granted(log.tick(after_ms=300)) == {"1.2": True}


def test_gates_are_passed_in_their_order() -> None:
    log = gated(
        3, concurrency={"max": 1}, rate_limit={"max": 2, "period_ms": FOREVER_MS}, singleton={}
    )
    outs = log.ask("0.1")
    (word,) = [out.value for out in outs if out.kind == "job_admitted"]
    assert [each["gate"] for each in word["passed"]] == ["rate_limit", "singleton", "concurrency"]
    assert skips(log.ask("1.1")) == {"1": "singleton"}, "it counts towards the rate all the same"
    assert skips(log.ask("2.1")) == {"2": "rate_limit"}
    replays(log)


def test_a_full_gate_ends_a_job_on_record() -> None:
    log = gated(3, concurrency={"max": 1}, max_waiting=1)
    outs = log.ask(*first(3))
    assert answers(outs) == "admitted delayed lost"
    (dead,) = [out.value for out in outs if out.kind == "job_dead"]
    assert (dead["job_event_id"], dead["reason"], dead["body"]) == ("2", "gate_full", b"body")
    replays(log)


def test_a_job_that_was_admitted_before_has_room_at_a_full_gate() -> None:
    log = gated(3, concurrency={"max": 1}, max_waiting=1)
    assert answers(log.ask("0.1", "1.1")) == "admitted delayed"
    log.beat(capacity=-1, claims=["0.1", "2.1"])
    assert granted(log.release("0.1")) == {}, "1 has the slot, and no worker yet"
    outs = log.ask("2.1")
    assert (answers(outs), granted(outs)) == ("delayed", {"1.2": True})
    assert "job_dead" not in said(outs)
    assert log.summary()["delayed"] == 2
    replays(log)


def test_asking_twice_is_answered_alike_and_counted_once() -> None:
    log = gated(2, rate_limit={"max": 1, "period_ms": 1_000})
    assert answers(log.ask("0.1")) == "admitted"
    outs = log.ask("0.1")
    assert (answers(outs), admitted(outs)) == ("admitted", [])


def test_a_claim_that_is_not_the_workers_is_refused() -> None:
    log = gated(1, concurrency={"max": 1})
    log.beat("w2", capacity=0)
    outs = log.ask("0.1", worker="w2")
    assert (answers(outs), said(outs)) == ("lost", ["claim_refused"])
    assert answers(log.ask("0.1")) == "admitted"


def test_a_claim_that_ran_out_comes_not_back_into_force_without_its_slot() -> None:
    log = gated(2, concurrency={"max": 1})
    log.ask("0.1", "1.1")
    log.beat(capacity=0, claims=["0.1"])
    log.tick(after_ms=TTL_MS)
    assert said(log.renew("0.1")) == ["claim_refused"], "its slot went to another"
    assert said(log.ack("0.1")) == ["job_acked"], "what is done is done"
    replays(log)


def test_a_purge_takes_what_waits_at_a_gate_and_gives_its_slots_back() -> None:
    log = gated(4, concurrency={"max": 1})
    log.ask("0.1", "1.1", "2.1")
    log.beat(capacity=0, claims=["0.1", "3.1"])
    log.ready("a", "a", priority="high")
    assert granted(log.ack("0.1")) == {"4.1": False}, "1 has the slot, and no worker yet"
    outs = log.purge()
    assert [out.key for out in outs if out.kind == "job_purged"] == ["1", "5", "2"]
    assert answers(log.ask("3.1")) == "admitted"
    assert not [key for key in log.rows if key.startswith(("a:", "n:")) and key[-1] != "3"]
    replays(log)


def test_jobs_of_triggers_without_gates_are_admitted_without_a_row() -> None:
    log = gated(1)
    outs = log.ask("0.1")
    assert (answers(outs), admitted(outs)) == ("admitted", [])
    assert not [key for key in log.rows if key.startswith("a:")]


def test_a_request_is_bounded() -> None:
    log = gated(1, concurrency={"max": 1})
    (out,) = log.ask(*["0.1"] * (gate_asks.ASKED_MAX + 1))
    assert out.kind == "record_quarantined"
    assert "SCH-006" in out.value["reason"]
    keys = {f"k{number}": "v" for number in range(gate_asks.KEYS_MAX + 1)}
    (out,) = log.ask("0.1", **keys)
    assert "8 keys of a job, expected at most 7" in out.value["reason"]
    (out,) = log.ask("0.1", concurrency="x" * 201)
    assert "keys.concurrency" in out.value["reason"]
    assert answers(log.ask(*["0.1"] * gate_asks.ASKED_MAX)).startswith("admitted admitted")


def test_jobs_that_come_back_stand_where_their_age_puts_them() -> None:
    log = gated(2, throttle={"max": 1, "period_ms": 1_000})
    log.ask("0.1", "1.1")
    log.beat(capacity=0, claims=["0.1"])
    late = ready_job(2, occurred_at_ms=START_MS + 1)
    log.next_offset = 3
    log.relay([late], 2)
    log.tick(after_ms=1_000)
    assert claimed(log.beat(capacity=1, claims=["0.1"])) == ["1.2"]
