"""Deliveries whose worker is interrupted, overtaken, cut off or killed: run once all the same."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any, cast

import psycopg
import pytest

from streams.core.turn.claim import CLAIM_TTL_MS
from streams.edge.turns.delivery import Deliveries, Ended, Lease, Outcome
from streams.edge.turns.sql_turns import SqlTurns, SqlTurnStore
from streams.edge.turns.task_queue import VISIBILITY_MS
from streams.edge.turns.turn_store import (
    Claimant,
    Progress,
    Status,
    TurnRecord,
)
from streams.errors import TaskQueueUnavailable
from tests.support.postgres import Postgres
from tests.support.sql_deliveries import Worker, enqueue, envelope, read
from tests.support.sql_turns import Place, postgres_place


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


def test_a_turn_hears_during_its_run_that_its_session_is_not_held_any_more(
    postgres: Postgres,
) -> None:
    heard: list[bool] = []
    with postgres_place(postgres) as place:
        turns = place.open()
        enqueue(turns, envelope())

        def cut_off(_record: TurnRecord, lease: Lease) -> Ended:
            with psycopg.connect(postgres.address(), autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            heard.append(lease.lost.wait(30))
            return Ended(Status.COMPLETED)

        Deliveries(turns, Claimant("w1", "h"), cut_off, renew_every_s=0.05).next()

    assert heard == [True]


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


class Away:
    """A store of which every call of one name fails, as in an outage."""

    def __init__(self, store: SqlTurnStore, name: str) -> None:
        self._store = store
        self._name = name
        self.failures = 0
        self.failed_often = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._name else getattr(self._store, name)

    def _fail(self, *_given: Any, **_named: Any) -> None:
        self.failures += 1
        if self.failures > 40:
            self.failed_often.set()
        raise TaskQueueUnavailable("db", "no answer", retryable=True)


def test_an_end_that_cannot_be_written_is_told_now_and_then_and_the_turn_comes_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    turns = place.open()
    enqueue(turns, envelope())
    store = cast("SqlTurnStore", Away(turns.store, "finish"))
    worker = Worker(SqlTurns(turns.queue, turns.guard, store, turns.database), "w1")
    worker.deliveries._outage.set()  # so that no try waits for the next one

    with pytest.raises(TaskQueueUnavailable, match="no answer"):
        worker.next()

    told = [line.message for line in caplog.records]
    assert told == ["turn_not_written"] * (120 // 20)
    assert turns.queue.get_queue_size() == 1


def test_renewals_that_fail_are_told_now_and_then(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    turns = place.open()
    enqueue(turns, envelope())
    away = Away(turns.store, "renew")
    unlucky = SqlTurns(turns.queue, turns.guard, cast("SqlTurnStore", away), turns.database)

    def long(_record: TurnRecord, _lease: Lease) -> Ended:
        assert away.failed_often.wait(30)
        return Ended(Status.COMPLETED)

    deliveries = Deliveries(unlucky, Claimant("w1", "h"), long, renew_every_s=0.001)

    assert deliveries.next() is Outcome.COMPLETED
    told = [line.message for line in caplog.records]
    assert told == ["turn_not_renewed"] * -(-away.failures // 20)


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
