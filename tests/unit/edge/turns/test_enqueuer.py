"""Enqueueing on databases: the record first, then the turn; what cannot be enqueued has failed.

Vectors of SEMANTICS 8.11 that concern the seams are named by their numbers.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streams.edge.turns.enqueuer import METADATA_CHARS_MAX, Enqueuer, SessionKilled, TurnRefused
from streams.edge.turns.sql_ledger import SqlLedger
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.turn_store import Status
from streams.errors import TaskQueueUnavailable
from tests.support.sql_turns import Place

GOAL = {"objective": "all tests pass", "validation_cmd": "make test"}


def seam(turns: SqlTurns) -> Enqueuer:
    return Enqueuer(SqlLedger(turns))


def break_queue(turns: SqlTurns) -> None:
    turns.database.run(lambda transaction: transaction.change("DROP TABLE agent_dispatch_queue"))


def taken(turns: SqlTurns) -> dict[str, Any]:
    found = turns.queue.get()
    assert found is not None
    return dict(found[1])


def test_8_10_who_enqueues_a_task_gets_its_handle(place: Place) -> None:
    turns = place.open()
    handle = asyncio.run(seam(turns).dispatch({"description": "look after it"}))
    assert handle["dispatch"] == "queued"
    assert handle["status"] == "pending"
    assert turns.queue.get_queue_size() == 1
    assert taken(turns)["job_id"] == handle["job_id"]


def test_8_12_a_goal_is_durable_before_its_turn_is(place: Place) -> None:
    turns = place.open()
    created = asyncio.run(seam(turns).create_goal({**GOAL, "tenant": "acme", "priority": "high"}))
    assert created["status"] == "success"
    assert created["objective"] == GOAL["objective"]
    assert created["dispatch"]["dispatch"] == "queued"
    assert created["dispatch"]["kind"] == "goal_loop"
    goal = turns.store.read(created["goal_id"])
    assert goal is not None
    assert (goal.status, goal.claimed_by) == (Status.PENDING, "")
    assert goal.spec["max_iterations"] == 20
    session = turns.store.read_session(created["session_id"])
    assert session is not None
    assert session.status == "queued"
    assert {**session.metadata["goal_spec"], "agent_name": ""} == goal.spec
    item = taken(turns)
    assert item["payload_ref"] == created["goal_id"]
    assert (item["session_id"], item["tenant"]) == (created["session_id"], "acme")
    assert item["priority"] == "high"
    assert "objective" not in item


def test_8_13_a_goal_that_cannot_be_enqueued_has_failed(place: Place) -> None:
    turns = place.open()
    break_queue(turns)
    with pytest.raises(TaskQueueUnavailable):
        asyncio.run(seam(turns).create_goal({**GOAL, "session_id": "sess-1"}))
    (goal,) = turns.store.records(session_id="sess-1")
    assert goal.status is Status.FAILED
    assert (goal.error or "").startswith("not enqueued: ")
    session = turns.store.read_session("sess-1")
    assert session is not None
    assert session.status == "failed"


def test_a_session_that_was_there_does_not_fail_with_a_turn_that_cannot_be_enqueued(
    place: Place,
) -> None:
    turns = place.open()
    asyncio.run(seam(turns).create_goal({**GOAL, "session_id": "sess-1"}))
    break_queue(turns)
    with pytest.raises(TaskQueueUnavailable):
        asyncio.run(seam(turns).create_goal({**GOAL, "session_id": "sess-1"}))
    session = turns.store.read_session("sess-1")
    assert session is not None
    assert session.status == "queued"
    statuses = {goal.status for goal in turns.store.records(session_id="sess-1")}
    assert statuses == {Status.PENDING, Status.FAILED}


@pytest.mark.parametrize(
    ("status", "then"), [("running", "running"), ("completed", "queued"), ("paused", "queued")]
)
def test_a_session_in_which_a_turn_runs_says_so_whatever_is_enqueued(
    place: Place, status: str, then: str
) -> None:
    turns = place.open()
    asyncio.run(seam(turns).create_goal({**GOAL, "session_id": "sess-1"}))
    turns.store.set_session("sess-1", status=status)
    asyncio.run(seam(turns).create_goal({**GOAL, "session_id": "sess-1"}))
    session = turns.store.read_session("sess-1")
    assert session is not None
    assert session.status == then


def test_8_14_a_bare_task_is_its_own_session(place: Place) -> None:
    turns = place.open()
    asked = {"description": "look after it", "agent_name": "planner"}
    handle = asyncio.run(seam(turns).dispatch(asked))
    assert handle["kind"] == "orchestrator_task"
    assert handle["status_url"].endswith(f"/job/{handle['job_id']}")
    item = taken(turns)
    assert item["payload_ref"] == item["session_id"] == item["job_id"] == handle["job_id"]
    assert item["agent_name"] == "planner"
    task = turns.store.read(handle["job_id"])
    assert task is not None
    assert task.spec["description"] == "look after it"


def test_a_task_may_belong_to_a_session(place: Place) -> None:
    turns = place.open()
    asked = {"description": "look after it", "session_id": "sess-1"}
    handle = asyncio.run(seam(turns).dispatch(asked))
    assert handle["session_id"] == "sess-1"
    assert taken(turns)["payload_ref"] == handle["job_id"]


@pytest.mark.parametrize(
    ("asked", "problems"),
    [
        ({}, ("objective is missing",)),
        ({**GOAL, "prio": 1}, ('"prio" is no field of a goal',)),
        ({**GOAL, "priority": "soon", "max_iterations": 0}, ('priority is "soon"', "max_iter")),
        ({**GOAL, "session_id": "a\nb"}, ("session_id is",)),
        ({**GOAL, "session_id": ".."}, ("session_id is '..', expected a name that a URL",)),
        ({**GOAL, "session_id": "."}, ("session_id is '.', expected a name that a URL",)),
        ({**GOAL, "domain": "a\nb"}, ("domain is unusable",)),
        ({**GOAL, "domain": "d" * 257}, ("domain is unusable",)),
        ({**GOAL, "deadline_unix": "soon"}, ("deadline_unix is",)),
    ],
)
def test_what_is_no_goal_leaves_nothing_behind(
    place: Place, asked: dict[str, Any], problems: tuple[str, ...]
) -> None:
    turns = place.open()
    with pytest.raises(TurnRefused) as refused:
        asyncio.run(seam(turns).create_goal(asked))
    assert len(refused.value.problems) == len(problems)
    for said, begin in zip(refused.value.problems, problems, strict=True):
        assert said.startswith(begin)
    assert turns.store.records() == []
    assert turns.store.sessions() == []
    assert turns.queue.get_queue_size() == 0


@pytest.mark.parametrize("description", [None, "", "  ", 5, "d" * 65_537, "a\0b", "a\ud800b"])
def test_what_is_no_task_is_refused(place: Place, description: object) -> None:
    turns = place.open()
    with pytest.raises(TurnRefused, match="description is missing or unusable"):
        asyncio.run(seam(turns).dispatch({"description": description}))
    assert turns.queue.get_queue_size() == 0
    assert turns.store.sessions() == []


def test_a_goal_too_large_for_its_sessions_metadata_stands_in_its_record(place: Place) -> None:
    turns = place.open()
    asked = {**GOAL, "objective": "o" * METADATA_CHARS_MAX}
    created = asyncio.run(seam(turns).create_goal(asked))
    goal = turns.store.read(created["goal_id"])
    session = turns.store.read_session(created["session_id"])
    assert goal is not None
    assert session is not None
    assert goal.spec["objective"] == asked["objective"]
    assert session.metadata == {"payload_ref": created["goal_id"], "tenant": ""}


def paused_goal(turns: SqlTurns) -> str:
    """Create a goal of sess-1 that was claimed and has paused."""
    asked = {**GOAL, "session_id": "sess-1", "tenant": "acme"}
    created = asyncio.run(seam(turns).create_goal(asked))
    found = turns.queue.get()
    assert found is not None
    turns.database.run(
        lambda transaction: transaction.change(
            "UPDATE agent_turn_records SET status = 'running', fence = 1"
        )
    )
    assert turns.store.finish(created["goal_id"], 1, Status.PAUSED)
    assert turns.queue.ack(found[0])
    return created["goal_id"]


def test_what_was_paused_goes_on_with_another_turn(place: Place) -> None:
    turns = place.open()
    goal_id = paused_goal(turns)
    assert asyncio.run(seam(turns).pause("sess-1"))
    (handle,) = asyncio.run(seam(turns).resume("sess-1")) or []
    session = turns.store.read_session("sess-1")
    assert session is not None
    assert not session.pause_requested
    item = taken(turns)
    assert (item["job_id"], item["payload_ref"]) == (handle["job_id"], goal_id)
    assert item["tenant"] == "acme"
    goal = turns.store.read(goal_id)
    assert goal is not None
    assert goal.status is Status.PENDING
    assert asyncio.run(seam(turns).resume("sess-1")) == []


def test_what_cannot_be_resumed_is_paused_as_before(place: Place) -> None:
    turns = place.open()
    goal_id = paused_goal(turns)
    break_queue(turns)
    with pytest.raises(TaskQueueUnavailable):
        asyncio.run(seam(turns).resume("sess-1"))
    goal = turns.store.read(goal_id)
    assert goal is not None
    assert goal.status is Status.PAUSED


def test_a_killed_session_ends_what_had_paused_and_takes_nothing_more(place: Place) -> None:
    turns = place.open()
    goal_id = paused_goal(turns)
    assert asyncio.run(seam(turns).kill("sess-1"))
    goal = turns.store.read(goal_id)
    assert goal is not None
    assert (goal.status, goal.error) == (Status.CANCELLED, "killed on request")
    with pytest.raises(SessionKilled):
        asyncio.run(seam(turns).create_goal({**GOAL, "session_id": "sess-1"}))
    with pytest.raises(SessionKilled):
        asyncio.run(seam(turns).resume("sess-1"))
    assert turns.queue.get_queue_size() == 0


def test_nothing_is_asked_of_a_session_that_is_not_there(place: Place) -> None:
    turns = place.open()
    assert not asyncio.run(seam(turns).pause("sess-9"))
    assert not asyncio.run(seam(turns).kill("sess-9"))
    assert asyncio.run(seam(turns).resume("sess-9")) is None


def test_records_are_listed_by_their_kind(place: Place) -> None:
    turns = place.open()
    created = asyncio.run(seam(turns).create_goal(GOAL))
    asyncio.run(seam(turns).dispatch({"description": "look after it"}))
    ledger = SqlLedger(turns)
    goals = asyncio.run(ledger.records(kind="goal_loop", limit=10))
    assert [goal.record_id for goal in goals] == [created["goal_id"]]
    assert asyncio.run(ledger.record(created["goal_id"], "orchestrator_task")) is None
