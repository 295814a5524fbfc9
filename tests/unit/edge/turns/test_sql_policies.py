"""Turns for busy sessions on either database: appended, refused, or in the place of others."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streams.core.turn.claim import CLAIM_TTL_MS
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns.delivery import Body, Deliveries, Ended, Lease, Outcome
from streams.edge.turns.enqueuer import Enqueuer, SessionBusy
from streams.edge.turns.sql_ledger import SqlLedger
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.task_queue import VISIBILITY_MS, TurnRejected
from streams.edge.turns.turn_store import Claimant, Progress, Status, TurnRecord
from tests.support.sql_turns import Place

IN_TIME_S = 30.0


def put(turns: SqlTurns, ref: str, session: str = "sess-1", **fields: Any) -> AgentTurnEnvelope:
    """Make a record, and its turn."""
    turns.store.create(TurnRecord(record_id=ref, kind="goal_loop", session_id=session))
    known: dict[str, Any] = {"job_id": f"job-{ref}", "payload_ref": ref, "enqueued_at_ms": 0}
    envelope = AgentTurnEnvelope(session_id=session, **{**known, **fields})
    turns.queue.put(envelope.json_fields())
    return envelope


def worker(turns: SqlTurns, run: Body | None = None) -> Deliveries:
    claimant = Claimant("w", "host")
    return Deliveries(turns, claimant, run or completed, look_every_s=0.01)


def completed(record: TurnRecord, lease: Lease) -> Ended:
    del lease
    return Ended(Status.COMPLETED, result=record.record_id)


def told(turns: SqlTurns, ref: str) -> tuple[Status, str | None]:
    found = turns.store.read(ref)
    assert found is not None
    return found.status, found.error


def outcomes(deliveries: Deliveries) -> list[Outcome]:
    found: list[Outcome] = []
    while (outcome := deliveries.next()) is not None:
        found.append(outcome)
    return found


def test_a_turn_that_will_not_wait_is_refused_while_another_waits_or_runs(place: Place) -> None:
    turns = place.open()
    put(turns, "first")
    with pytest.raises(TurnRejected) as waiting:
        put(turns, "second", when_busy="reject")
    delivery = turns.queue.get()
    assert delivery is not None
    with pytest.raises(TurnRejected):
        put(turns, "third", when_busy="reject")
    put(turns, "elsewhere", "sess-2", when_busy="reject")

    assert str(waiting.value) == "rejected: turn job-first of its session had not ended"
    assert turns.queue.get_queue_size() == 2
    turns.queue.ack(delivery[0])
    put(turns, "fourth", when_busy="reject")
    assert turns.queue.get_queue_size() == 2


def test_what_has_ended_is_in_nobody_s_way_though_it_was_not_acked(place: Place) -> None:
    turns = place.open()
    first = put(turns, "first")
    assert turns.queue.get() is not None
    claimed = turns.store.claim(first, Claimant("w", "host")).record
    assert claimed is not None
    turns.store.finish("first", claimed.fence, Status.COMPLETED)

    put(turns, "second", when_busy="reject")

    assert turns.queue.get_queue_size() == 2


def test_turns_of_one_job_or_one_record_are_not_in_each_other_s_way(place: Place) -> None:
    turns = place.open()
    put(turns, "other")
    put(turns, "first")
    put(turns, "first", when_busy="reject", job_id="job-first")
    put(turns, "second", when_busy="interrupt", job_id="job-first")

    expected = [Outcome.COMPLETED, Outcome.COMPLETED, Outcome.SKIPPED, Outcome.COMPLETED]
    assert outcomes(worker(turns)) == expected


def test_turns_of_one_record_are_not_in_each_other_s_way(place: Place) -> None:
    turns = place.open()
    put(turns, "first")
    put(turns, "first", when_busy="reject", job_id="another")

    assert outcomes(worker(turns)) == [Outcome.COMPLETED, Outcome.SKIPPED]


def test_an_interrupt_ends_what_waits_and_then_runs(place: Place) -> None:
    turns = place.open()
    for ref in ("one", "two"):
        put(turns, ref)
    put(turns, "other", "sess-2")
    put(turns, "last", when_busy="interrupt")
    put(turns, "after")

    assert sorted(outcomes(worker(turns))) == [*["completed"] * 3, *["interrupted"] * 2]
    assert told(turns, "one") == (Status.CANCELLED, "interrupted by job-last")
    assert told(turns, "two") == (Status.CANCELLED, "interrupted by job-last")
    for ref in ("other", "last", "after"):
        assert told(turns, ref) == (Status.COMPLETED, None)


@pytest.mark.parametrize("way", ["returns", "raises", "is_cancelled", "says_failed"])
def test_an_interrupt_ends_the_body_that_runs_before_its_own(place: Place, way: str) -> None:
    turns, other = place.open("w1"), place.open("w2")
    runs, order = threading.Event(), list[str]()

    def run(record: TurnRecord, lease: Lease) -> Ended:
        if record.record_id == "last":
            order.append("last runs")
            return Ended(Status.COMPLETED)
        runs.set()
        assert lease.lost.wait(IN_TIME_S)
        order.append("first ends")
        assert not lease.iterated(Progress(1, (), None))
        if way == "raises":
            raise RuntimeError("told to end")
        if way == "is_cancelled":
            raise asyncio.CancelledError
        return Ended(Status.FAILED if way == "says_failed" else Status.PAUSED, error="cut")

    put(turns, "first")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(worker(turns, run).next)
        assert runs.wait(IN_TIME_S)
        put(other, "last", when_busy="interrupt")
        assert worker(other, run).next() is None, "never two at once"
        assert first.result(IN_TIME_S) is Outcome.INTERRUPTED
    assert outcomes(worker(other, run)) == [Outcome.COMPLETED]

    assert order == ["first ends", "last runs"]
    assert told(turns, "first") == (Status.CANCELLED, "interrupted by job-last")


def test_what_is_completed_stays_so_though_it_was_told_to_end(place: Place) -> None:
    turns = place.open()

    def run(record: TurnRecord, lease: Lease) -> Ended:
        if record.record_id == "first":
            put(turns, "last", when_busy="interrupt")
            assert lease.lost.wait(IN_TIME_S)
        return Ended(Status.COMPLETED, result="done")

    put(turns, "first")

    assert outcomes(worker(turns, run)) == [Outcome.COMPLETED, Outcome.COMPLETED]
    assert told(turns, "first") == (Status.COMPLETED, None)


def test_an_interrupted_turn_of_a_worker_that_died_never_runs_again(place: Place) -> None:
    turns = place.open()
    first = put(turns, "first")
    assert turns.queue.get() is not None
    turns.store.claim(first, Claimant("dead", "host"))
    put(turns, "last", when_busy="interrupt")

    place.pass_time(VISIBILITY_MS + 1_000)
    assert outcomes(worker(turns)) == [Outcome.WAITING], "its holder may still run it"
    place.pass_time(CLAIM_TTL_MS + 1_000)

    assert outcomes(worker(turns)) == [Outcome.INTERRUPTED, Outcome.COMPLETED]
    assert told(turns, "first") == (Status.CANCELLED, "interrupted by job-last")


@pytest.mark.parametrize("status", [Status.FAILED, Status.PAUSED, None])
def test_a_turn_that_would_be_skipped_interrupts_nobody(
    place: Place, status: Status | None
) -> None:
    turns = place.open()
    put(turns, "first")
    ref = "absent"
    if status is not None:
        ref = "ended"
        record = TurnRecord(record_id=ref, kind="goal_loop", session_id="sess-1", status=status)
        turns.store.create(record)
    late = AgentTurnEnvelope(
        job_id="late", session_id="sess-1", payload_ref=ref, when_busy="interrupt", enqueued_at_ms=0
    )
    turns.queue.put(late.json_fields())
    put(turns, "expired", when_busy="interrupt", deadline_ms=1)

    expected = [Outcome.COMPLETED, Outcome.SKIPPED, Outcome.EXPIRED]
    assert outcomes(worker(turns)) == expected


def test_a_paused_goal_outlives_the_interrupt_of_its_turn(place: Place) -> None:
    turns = place.open()
    put(turns, "first")
    turns.store.move("first", from_={Status.PENDING}, to=Status.PAUSED)
    put(turns, "last", when_busy="interrupt")

    assert outcomes(worker(turns)) == [Outcome.SKIPPED, Outcome.COMPLETED]
    assert told(turns, "first") == (Status.PAUSED, None)


def test_of_many_who_will_not_wait_one_is_taken(place: Place) -> None:
    opened = [place.open(f"w{number}") for number in range(4)]

    def try_to(number: int) -> bool:
        try:
            put(opened[number], f"goal-{number}", when_busy="reject")
        except TurnRejected:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(try_to, range(4)))

    assert sum(taken) == 1


def test_who_enqueues_hears_that_the_session_is_busy_and_the_record_says_so(place: Place) -> None:
    turns = place.open()
    enqueuer = Enqueuer(SqlLedger(turns))
    first = asyncio.run(enqueuer.dispatch({"description": "one", "session_id": "sess-1"}))

    with pytest.raises(SessionBusy) as caught:
        asyncio.run(
            enqueuer.dispatch({"description": "two", "session_id": "sess-1", "when_busy": "reject"})
        )

    assert caught.value.problems == (
        f"rejected: turn {first['job_id']} of its session had not ended",
    )
    [refused] = turns.store.records(status=Status.FAILED)
    assert (refused.spec["description"], refused.error) == ("two", caught.value.problems[0])
    assert turns.queue.get_queue_size() == 1


def test_what_is_no_turn_is_in_nobody_s_way(place: Place) -> None:
    turns = place.open()
    turns.queue.put({"session_id": "sess-1", "job_id": "odd", "objective": "no field of a turn"})
    put(turns, "first", when_busy="reject")
    turns.queue.put({"session_id": "sess-1", "job_id": "odd", "when_busy": "sometimes"})

    assert outcomes(worker(turns)) == [Outcome.BURIED, Outcome.COMPLETED, Outcome.BURIED]


@pytest.mark.parametrize("count", [499, 500, 501])
def test_a_long_session_is_interrupted_whole(place: Place, count: int) -> None:
    turns = place.open()
    for number in range(count):
        known = {"session_id": "sess-1", "job_id": f"job-{number}", "payload_ref": f"r-{number}"}
        turns.queue.put(known)

    put(turns, "last", when_busy="interrupt")

    sql = "SELECT COUNT(*) FROM agent_dispatch_queue WHERE interrupted_by = 'job-last'"
    [(marked,)] = turns.database.run(lambda transaction: transaction.execute(sql))
    assert marked == count
