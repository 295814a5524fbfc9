"""From the queue to the ack: one run for each turn, whatever is delivered twice, late or broken.

Vectors of SEMANTICS 8.11 that concern what carries turns are named by their numbers.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from streams.core.turn.claim import CLAIM_TTL_MS
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns.delivery import WAIT_MS_MAX, Deliveries, Ended, Lease, Outcome
from streams.edge.turns.sql_turns import SqlTurns, SqlTurnStore
from streams.edge.turns.task_queue import VISIBILITY_MS
from streams.edge.turns.turn_store import (
    Claimant,
    FleetWorker,
    Progress,
    Session,
    Status,
    TurnRecord,
)
from streams.errors import TaskQueueUnavailable
from tests.support.postgres import Postgres
from tests.support.sql_turns import Place, now_ms, postgres_place


def envelope(session: str = "sess-1", ref: str = "goal-1", **fields: Any) -> AgentTurnEnvelope:
    known: dict[str, Any] = {"job_id": f"dispatch-{ref}", "enqueued_at_ms": 0, "payload_ref": ref}
    return AgentTurnEnvelope(session_id=session, **{**known, **fields})


def enqueue(turns: SqlTurns, turn: AgentTurnEnvelope, *, record: bool = True) -> None:
    if record:
        turns.store.create_session(Session(session_id=turn.session_id))
        turns.store.create(
            TurnRecord(record_id=turn.payload_ref, kind=turn.kind, session_id=turn.session_id)
        )
    turns.queue.put(turn.json_fields())


class Worker:
    """A worker that notes what it ran."""

    def __init__(self, turns: SqlTurns, token: str, **options: Any) -> None:
        self.turns = turns
        self.ran: list[str] = []
        self.deliveries = Deliveries(turns, Claimant(token, f"host-{token}"), self.run, **options)

    def run(self, record: TurnRecord, lease: Lease) -> Ended:
        self.ran.append(record.record_id)
        lease.iterated(Progress(1, (), None))
        self.turns.store.say(record.session_id, "assistant", "done")
        return Ended(Status.COMPLETED, result="ok")

    def next(self) -> Outcome | None:
        return self.deliveries.next()


def read(turns: SqlTurns, ref: str = "goal-1") -> TurnRecord:
    found = turns.store.read(ref)
    assert found is not None
    return found


def test_8_09_an_item_is_put_taken_and_acked(place: Place) -> None:
    queue = place.open().queue
    item = envelope().json_fields()
    sizes: list[int] = []

    queue.put(item)
    sizes.append(queue.get_queue_size())
    found = queue.get()
    assert found is not None
    assert found[1] == item
    queue.ack(found[0])
    sizes.append(queue.get_queue_size())

    assert sizes == [1, 0]


def test_8_10_an_orchestrator_turn_is_queued_under_its_handle(place: Place) -> None:
    turns = place.open()
    turn = envelope("job-1", "job-1", job_id="job-1", kind="orchestrator_task")

    enqueue(turns, turn)

    assert (turn.handle()["dispatch"], turn.handle()["job_id"]) == ("queued", "job-1")
    assert turns.queue.get_queue_size() == 1


def test_8_16_a_turn_is_claimed_run_and_written_back(place: Place) -> None:
    turns = place.open()
    enqueue(turns, envelope())
    worker = Worker(turns, "w1")

    assert worker.next() is Outcome.COMPLETED

    found = read(turns)
    assert (found.status, found.iterations, found.executed_by) == ("completed", 1, "w1")
    assert (found.result, found.dispatch_host) == ("ok", "host-w1")
    assert [(each.role, each.content) for each in turns.store.said("sess-1")] == [
        ("assistant", "done")
    ]
    assert (turns.queue.get_queue_size(), worker.next()) == (0, None)


def test_8_17_the_same_envelope_again_is_skipped(place: Place) -> None:
    turns = place.open()
    enqueue(turns, envelope())
    turns.queue.put(envelope().json_fields())
    worker = Worker(turns, "w1")

    outcomes = [worker.next(), worker.next(), worker.next()]

    assert outcomes == [Outcome.COMPLETED, Outcome.SKIPPED, None]
    assert worker.ran == ["goal-1"]


def test_8_18_a_turn_that_another_runs_is_given_back_and_never_acked(place: Place) -> None:
    # The vector says skipped; acked, the turn would be lost with its holder (10.1 A1).
    turns = place.open()
    enqueue(turns, envelope())
    turns.store.claim(envelope(), Claimant("gone", "host"))
    worker = Worker(turns, "w1")

    assert worker.next() is Outcome.WAITING
    assert (turns.queue.get_queue_size(), worker.next()) == (1, None)

    place.pass_time(WAIT_MS_MAX + 1)
    assert worker.next() is Outcome.WAITING
    place.pass_time(CLAIM_TTL_MS)
    assert worker.next() is Outcome.COMPLETED
    assert read(turns).fence == 2


def test_8_20_a_turn_past_its_deadline_fails_without_running(place: Place) -> None:
    turns = place.open()
    enqueue(turns, envelope(deadline_ms=now_ms(turns.database) - 10_000))
    worker = Worker(turns, "w1")

    assert worker.next() is Outcome.EXPIRED

    assert (read(turns).status, worker.ran) == ("failed", [])
    assert "deadline" in (read(turns).error or "")
    assert turns.queue.get_queue_size() == 0


@pytest.mark.parametrize("item", [{"job_id": "j"}, {"session_id": "s", "kind": "dance"}, {}])
def test_8_21_poison_is_in_the_dead_letters_before_it_is_gone(
    place: Place, item: dict[str, Any]
) -> None:
    turns = place.open()
    turns.queue.put(item)
    enqueue(turns, envelope())
    worker = Worker(turns, "w1")

    assert [worker.next(), worker.next()] == [Outcome.BURIED, Outcome.COMPLETED]

    (letter,) = turns.queue.dead_letters()
    assert letter.error
    assert turns.queue.get_queue_size() == 0


def test_an_envelope_may_leave_out_what_has_a_default(place: Place) -> None:
    turns = place.open()
    enqueue(turns, envelope())
    turns.queue.put({"session_id": "sess-1", "payload_ref": "goal-1"})
    worker = Worker(turns, "w1")

    assert [worker.next(), worker.next()] == [Outcome.COMPLETED, Outcome.SKIPPED]


def test_8_22_one_turn_in_two_workers_at_once_is_run_by_one(place: Place) -> None:
    enqueue(place.open("p"), envelope())
    place.open("p").queue.put(envelope().json_fields())
    # A claim that was presumed dead: the second worker is handed what the first one still has.
    began, go_on = threading.Event(), threading.Event()
    workers = [Worker(place.open(f"w{number}"), f"w{number}") for number in range(2)]

    def slowly(record: TurnRecord, lease: Lease) -> Ended:
        began.set()
        assert go_on.wait(30)
        return Worker.run(workers[0], record, lease)

    workers[0].deliveries = Deliveries(workers[0].turns, Claimant("w0", "h"), slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(workers[0].next)
        assert began.wait(30)
        place.pass_time(VISIBILITY_MS + 1)
        # Taken while the first one runs: during its ack there is a moment at which nothing is.
        taken = workers[1].deliveries.take()
        assert taken is not None
        second = pool.submit(workers[1].deliveries.see_through, taken)
        go_on.set()
        outcomes = {first.result(60), second.result(60)}

    assert outcomes == {Outcome.COMPLETED, Outcome.SKIPPED}
    assert workers[0].ran + workers[1].ran == ["goal-1"]


def test_8_24_two_heartbeats_of_a_worker_are_one_row_with_the_newest_values(place: Place) -> None:
    store = place.open().store
    beat = FleetWorker(
        worker_id="w", host="h", capacity=1, active_sessions=(), queue_backend="sqlite"
    )
    store.beat(beat)
    (first,) = store.workers()
    place.pass_time(30_000)
    store.beat(
        FleetWorker(
            worker_id="w", host="i", capacity=2, active_sessions=("s",), queue_backend="kafka"
        )
    )

    (found,) = store.workers()
    assert (found.host, found.capacity, found.active_sessions) == ("i", 2, ("s",))
    assert found.started_at_ms == first.started_at_ms
    assert found.last_heartbeat_ms >= first.last_heartbeat_ms


def test_8_25_a_worker_that_was_last_heard_of_long_ago_is_not_listed(place: Place) -> None:
    store = place.open().store
    store.beat(
        FleetWorker(worker_id="w", host="h", capacity=1, active_sessions=(), queue_backend="sqlite")
    )
    place.pass_time(900_000)

    assert store.workers() == []


def test_a_session_says_how_its_turns_stand(place: Place) -> None:
    turns = place.open()
    for ref in ("goal-1", "goal-2"):
        enqueue(turns, envelope(ref=ref))

    def status() -> str:
        session = turns.store.read_session("sess-1")
        assert session is not None
        return session.status

    seen: list[str] = [status()]

    def run(_record: TurnRecord, _lease: Lease) -> Ended:
        seen.append(status())
        if len(seen) == 4:
            raise KeyboardInterrupt
        return Ended(Status.COMPLETED)

    deliveries = Deliveries(turns, Claimant("w1", "h"), run)
    deliveries.next()
    seen.append(status())  # the other one waits
    with pytest.raises(KeyboardInterrupt):
        deliveries.next()
    seen.append(status())
    deliveries.next()

    assert seen == ["queued", "running", "queued", "running", "queued", "running"]
    assert status() == "completed"


def test_a_turn_without_a_record_is_skipped_and_told(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    turns = place.open()
    enqueue(turns, envelope(), record=False)

    assert Worker(turns, "w1").next() is Outcome.SKIPPED
    assert turns.queue.get_queue_size() == 0
    (line,) = caplog.records
    assert (line.message, line.__dict__["record"]) == ("turn_without_record", "goal-1")


def test_a_body_that_raises_has_failed_durably(place: Place) -> None:
    turns = place.open()
    enqueue(turns, envelope())

    def broken(_record: TurnRecord, _lease: Lease) -> Ended:
        raise KeyError("no such tool")

    outcome = Deliveries(turns, Claimant("w1", "h"), broken).next()

    assert outcome is Outcome.FAILED
    assert (read(turns).status, read(turns).error) == ("failed", "KeyError: 'no such tool'")
    assert turns.queue.get_queue_size() == 0


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (Status.FAILED, Outcome.FAILED),
        (Status.CANCELLED, Outcome.COMPLETED),
        (Status.PAUSED, Outcome.COMPLETED),
    ],
)
def test_an_outcome_says_what_the_record_says(
    place: Place, status: Status, outcome: Outcome
) -> None:
    turns = place.open()
    enqueue(turns, envelope())

    found = Deliveries(turns, Claimant("w1", "h"), lambda _record, _lease: Ended(status)).next()

    assert (found, read(turns).status) == (outcome, status)


def test_an_interrupted_turn_is_given_back_at_once(place: Place) -> None:
    turns = place.open()
    enqueue(turns, envelope())

    def interrupted(_record: TurnRecord, _lease: Lease) -> Ended:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Deliveries(turns, Claimant("w1", "h"), interrupted).next()

    assert read(turns).status == "pending"
    assert Worker(turns, "w2").next() is Outcome.COMPLETED


def test_a_long_turn_keeps_its_claims(place: Place) -> None:
    turns, other = place.open("w1"), place.open("w2")
    enqueue(turns, envelope())
    renewals: list[bool] = []

    def long(record: TurnRecord, lease: Lease) -> Ended:
        for _ in range(3):
            before = read(other).renewed_at_ms or 0
            place.pass_time(CLAIM_TTL_MS + 1)
            aged = read(other).renewed_at_ms or 0
            while (read(other).renewed_at_ms or 0) == aged:
                assert not lease.lost.wait(0.01)
            renewals.append((read(other).renewed_at_ms or 0) > before - CLAIM_TTL_MS)
        return Worker(turns, "w1").run(record, lease)

    outcome = Deliveries(turns, Claimant("w1", "h"), long, renew_every_s=0.01).next()

    assert outcome is Outcome.COMPLETED
    assert renewals == [True] * 3
    assert read(turns).fence == 1


def test_who_lost_its_claim_hears_of_it_and_its_end_does_not_count(place: Place) -> None:
    turns, other = place.open("w1"), place.open("w2")
    enqueue(turns, envelope())

    def overtaken(_record: TurnRecord, lease: Lease) -> Ended:
        place.pass_time(CLAIM_TTL_MS + 1)
        answer = other.store.claim(envelope(), Claimant("w2", "h"))
        assert answer.record is not None
        assert lease.lost.wait(30)
        assert not lease.iterated(Progress(7, (), None))
        return Ended(Status.COMPLETED, result="late")

    outcome = Deliveries(turns, Claimant("w1", "h"), overtaken, renew_every_s=0.2).next()

    assert outcome is Outcome.LOST
    assert (read(turns).claimed_by, read(turns).result) == ("w2", None)
    assert turns.queue.get_queue_size() == 1


def test_a_session_that_is_held_is_waited_for_so_long_and_the_turn_comes_again(
    place: Place,
) -> None:
    turns, other = place.open("w1"), place.open("w2")
    enqueue(turns, envelope())
    worker = Worker(turns, "w1", guard_within_s=0.1)

    with other.guard.hold("sess-1"):
        assert worker.next() is Outcome.WAITING

    assert worker.next() is Outcome.COMPLETED


def test_a_restart_of_the_database_during_a_turn_makes_nothing_run_twice(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    with postgres_place(postgres) as place:
        turns = place.open()
        enqueue(turns, envelope())

        def restarting(record: TurnRecord, _lease: Lease) -> Ended:
            ran.append(record.record_id)
            postgres.stop()
            starting.start()
            return Ended(Status.COMPLETED)

        starting = threading.Thread(target=postgres.start)
        deliveries = Deliveries(turns, Claimant("w1", "h"), restarting)

        assert deliveries.next() is Outcome.COMPLETED
        starting.join()
        assert (deliveries.next(), turns.queue.get_queue_size()) == (None, 0)

    assert ran == ["goal-1"]
    told = {line.message for line in caplog.records}
    assert {"session_guard_lost"} <= told <= {"session_guard_lost", "turn_not_written"}


class Interrupted:
    """A store whose answers to `finish` are lost, once, after they took effect."""

    def __init__(self, store: SqlTurnStore) -> None:
        self._store = store
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def finish(self, *given: Any, **named: Any) -> bool:
        answer = self._store.finish(*given, **named)
        if not self.lost:
            self.lost += 1
            raise TaskQueueUnavailable("db", "it may have taken effect", retryable=True)
        return answer


def test_an_end_whose_answer_was_lost_counts(place: Place) -> None:
    turns = place.open()
    enqueue(turns, envelope())
    store = Interrupted(turns.store)
    unlucky = SqlTurns(turns.queue, turns.guard, cast("SqlTurnStore", store), turns.database)

    outcome = Worker(unlucky, "w1").next()

    assert (outcome, store.lost) == (Outcome.COMPLETED, 1)
    assert read(turns).status == "completed"
    assert turns.queue.get_queue_size() == 0


_CRASH = """
import os, signal, sys
from pathlib import Path
from streams.edge.turns.delivery import Deliveries
from streams.edge.turns.opening import open_turns
from streams.edge.turns.turn_store import Claimant
from streams.settings import Settings

def die(record, lease):
    os.kill(os.getpid(), signal.SIGKILL)

Deliveries(open_turns(Settings.from_env(), consumer="w0"), Claimant("w0", "h"), die).next()
"""


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_turn_of_a_worker_that_was_killed_is_run_by_another_one(
    place: Place, tmp_path: Any
) -> None:
    turns = place.open()
    enqueue(turns, envelope())
    enqueue(turns, envelope(ref="goal-2"))
    environment = {"TASK_QUEUE_BACKEND": "sqlite", "HARN_STATE_DIR": str(tmp_path)}
    died = subprocess.run(
        [sys.executable, "-c", _CRASH], env=environment, check=False, capture_output=True
    )
    assert died.returncode == -9, died.stderr
    worker = Worker(turns, "w1")

    assert worker.next() is None
    place.pass_time(VISIBILITY_MS + 1)
    assert worker.next() is Outcome.WAITING
    place.pass_time(CLAIM_TTL_MS)

    assert [worker.next(), worker.next(), worker.next()] == [Outcome.COMPLETED] * 2 + [None]
    assert worker.ran == ["goal-1", "goal-2"]
