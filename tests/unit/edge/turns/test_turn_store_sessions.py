"""Sessions, what is said in them, and who works, on either database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streams.edge.turns.sql_turns import SqlTurnStore
from streams.edge.turns.turn_store import (
    WORKER_TTL_MS,
    FleetWorker,
    Session,
)
from tests.support.sql_turns import Place


def test_a_session_is_read_as_it_was_created_and_created_once(store: SqlTurnStore) -> None:
    session = Session(session_id="s", domain="d", metadata={"goal_spec": {"objective": "o"}})

    assert store.create_session(session)
    assert not store.create_session(Session(session_id="s", domain="other"))

    found = store.read_session("s")
    assert found is not None
    assert (found.domain, found.status, found.metadata) == ("d", "queued", session.metadata)
    assert (found.background, found.needs_input) == (True, False)
    assert store.read_session("other") is None


def test_requests_are_kept_until_they_are_taken_back_whatever_else_changes(
    store: SqlTurnStore,
) -> None:
    store.create_session(Session(session_id="s"))

    def wanted() -> tuple[bool, bool, str, bool]:
        found = store.read_session("s")
        assert found is not None
        return found.pause_requested, found.kill_requested, found.status, found.needs_input

    assert store.request("s", pause=True)
    assert store.set_session("s", status="running")
    assert wanted() == (True, False, "running", False)
    assert store.request("s", kill=True)
    assert store.set_session("s", needs_input=True)
    assert store.request("s", pause=False)
    assert wanted() == (False, True, "running", True)
    assert not store.request("other", pause=True)
    assert not store.set_session("other", status="x")


def test_sessions_are_listed_by_status(store: SqlTurnStore) -> None:
    for name in ("a", "b"):
        store.create_session(Session(session_id=name))
    store.set_session("b", status="running")

    assert [each.session_id for each in store.sessions(status="running")] == ["b"]
    assert {each.session_id for each in store.sessions()} == {"a", "b"}


def test_what_is_said_is_numbered_without_gaps_however_many_speak(place: Place) -> None:
    place.open().store.create_session(Session(session_id="s"))
    stores = [place.open(f"w{number}").store for number in range(4)]

    def speak(store: SqlTurnStore) -> list[int]:
        return [store.say("s", "assistant", f"{number}") for number in range(5)]

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for each in pool.map(speak, stores) for number in each]

    assert sorted(numbers) == list(range(1, 21))
    said = stores[0].said("s")
    assert [each.number for each in said] == list(range(1, 21))
    assert [each.number for each in stores[0].said("s", after=7, limit=2)] == [8, 9]


def test_nothing_is_said_in_a_session_that_is_not_there_or_in_too_many_words(
    store: SqlTurnStore,
) -> None:
    with pytest.raises(ValueError, match="no session 's'"):
        store.say("s", "user", "x")
    store.create_session(Session(session_id="s"))
    with pytest.raises(ValueError, match="500000 at most"):
        store.say("s", "user", "x" * 500_001)
    assert store.said("s") == []


def worker(name: str, **fields: Any) -> FleetWorker:
    known: dict[str, Any] = {
        "host": "h",
        "capacity": 1,
        "active_sessions": (),
        "queue_backend": "sqlite",
    }
    return FleetWorker(worker_id=name, **{**known, **fields})


def test_workers_that_were_not_heard_of_drop_out_and_come_back(
    place: Place, store: SqlTurnStore
) -> None:
    store.beat(worker("a"))
    place.pass_time(WORKER_TTL_MS - 5_000)
    store.beat(worker("b"))
    assert [each.worker_id for each in store.workers()] == ["b", "a"]

    place.pass_time(6_000)
    assert [each.worker_id for each in store.workers()] == ["b"]
    store.beat(worker("a"))
    assert [each.worker_id for each in store.workers()] == ["a", "b"]


def test_a_worker_that_has_ended_is_not_there_at_once(store: SqlTurnStore) -> None:
    store.beat(worker("a"))
    store.beat(worker("b"))
    store.leave("a")
    store.leave("nobody")
    assert [each.worker_id for each in store.workers()] == ["b"]
    store.beat(worker("a"))
    assert {each.worker_id for each in store.workers()} == {"a", "b"}


def test_workers_that_were_not_heard_of_for_a_day_are_forgotten(
    place: Place, store: SqlTurnStore
) -> None:
    store.beat(worker("a"))
    place.pass_time(25 * 3_600_000)
    store.beat(worker("b"))

    count = "SELECT worker_id FROM dispatch_workers"
    rows = place.open().database.run(lambda transaction: transaction.execute(count))
    assert rows == [("b",)]
