"""From the queue to the ack: one run for each turn, whatever is delivered twice, late or broken.

Vectors of SEMANTICS 8.11 that concern what carries turns are named by their numbers.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streams.core.turn.claim import CLAIM_TTL_MS
from streams.edge.turns.delivery import WAIT_MS_MAX, Deliveries, Ended, Lease, Outcome
from streams.edge.turns.task_queue import VISIBILITY_MS
from streams.edge.turns.turn_store import (
    Claimant,
    Status,
    TurnRecord,
)
from tests.support.sql_deliveries import Worker, enqueue, envelope, read
from tests.support.sql_turns import Place, now_ms


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
