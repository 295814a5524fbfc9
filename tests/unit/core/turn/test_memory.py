"""What an owner of a partition knows after loading: records, ends, and its own fence."""

from __future__ import annotations

import pytest

from streams.core.record import Output, Position
from streams.core.turn.claim import Skip, decide
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.memory import Memory
from streams.core.turn.record import (
    Holder,
    claimed_goal,
    claimed_job,
    desired_key,
    ended_goal,
    ended_job,
    goal_key,
    job_key,
    new_goal,
    new_job,
    session_record_key,
)
from streams.core.turn.session import asked, new_session
from streams.core.turn.words import claimed, finished
from streams.core.wire import AgentGoal, GoalSpec

SPEC: GoalSpec = {
    "objective": "all tests pass",
    "end_state": "",
    "validation_cmd": None,
    "max_iterations": 20,
    "constraints": [],
}


def holder(fence: int) -> Holder:
    return Holder(token=f"host:{fence}", host="host", fence=fence)


def turn(job_id: str = "turn-1", **fields: str) -> AgentTurnEnvelope:
    known = {"session_id": "s-1", "payload_ref": "goal-1"} | fields
    return AgentTurnEnvelope(job_id=job_id, enqueued_at_ms=1, **known)  # pyright: ignore[reportArgumentType]


def goal() -> AgentGoal:
    return new_goal("goal-1", "s-1", SPEC, now_ms=1)


def told(memory: Memory, word: Output) -> None:
    memory.fold(word.kind, word.key, word.value)


def end(offset: int, fence: int, job_id: str = "turn-1") -> Output:
    at = Position("agent_turns", 0, offset)
    return finished(
        turn(job_id), at, holder(fence), outcome="completed", record_status=None, now_ms=9
    )


def test_nothing_loaded_knows_nothing_and_its_owner_is_the_first() -> None:
    memory = Memory(0)
    assert memory.next_fence == 1
    assert memory.claimable(turn()) is None
    assert not memory.has_ended("turn-1")
    assert memory.session("s-1") is None
    assert memory.desired("s-1") is None


@pytest.mark.parametrize(("bookmark", "claims", "record"), [(7, 2, 3), (2, 7, 3), (2, 3, 7)])
def test_the_fence_is_above_those_of_bookmark_claims_and_records(
    bookmark: int, claims: int, record: int
) -> None:
    memory = Memory(0, fence=bookmark)
    at = Position("agent_turns", 0, 4)
    told(memory, claimed(turn(), at, holder(claims), attempt=1, now_ms=1))
    running = claimed_goal(goal(), holder(record), job_id="turn-1", now_ms=2)
    memory.fold("agent_goal", goal_key("goal-1"), running)
    assert memory.next_fence == 8


def test_the_fence_of_a_record_that_has_ended_counts() -> None:
    memory = Memory(0)
    job = claimed_job(new_job("j", "s-1", "work", now_ms=1), holder(5), now_ms=2)
    done = ended_job(job, "completed", executed_by="host:5", now_ms=3)
    memory.fold("agent_job", job_key("j"), done)
    assert memory.next_fence == 6


def test_an_end_is_known_by_job_from_the_committed_offset_on() -> None:
    memory = Memory(10)
    told(memory, end(9, 1, "before"))
    told(memory, end(10, 1, "at"))
    assert not memory.has_ended("before")
    assert memory.has_ended("at")
    assert memory.history.has_ended(10)


def test_an_end_said_by_an_owner_that_was_fenced_is_none() -> None:
    memory = Memory(0)
    at = Position("agent_turns", 0, 0)
    told(memory, claimed(turn(), at, holder(2), attempt=1, now_ms=1))
    told(memory, end(0, 1))
    assert not memory.has_ended("turn-1")
    assert memory.history.refused == 1


def test_the_last_record_of_a_key_counts() -> None:
    memory = Memory(0)
    running = claimed_goal(goal(), holder(1), job_id="turn-1", now_ms=2)
    memory.fold("agent_goal", goal_key("goal-1"), goal())
    memory.fold("agent_goal", goal_key("goal-1"), running)
    assert memory.goal("goal-1") == running
    found = memory.claimable(turn())
    assert found is not None
    assert (found.status, found.claimed_by, found.attempt) == ("running", "host:1", 1)


def test_of_what_has_ended_the_status_is_kept_and_its_turn_is_skipped() -> None:
    memory = Memory(0)
    running = claimed_goal(goal(), holder(1), job_id="turn-1", now_ms=2)
    memory.fold("agent_goal", goal_key("goal-1"), running)
    done = ended_goal(running, "failed", executed_by="host:1", now_ms=3)
    memory.fold("agent_goal", goal_key("goal-1"), done)
    assert memory.goal("goal-1") is None
    decision = decide(turn(), memory.claimable(turn()), now_ms=4, fence=memory.next_fence)
    assert decision == Skip("terminal")


def test_a_goal_and_a_task_of_one_id_are_two() -> None:
    memory = Memory(0)
    job = new_job("goal-1", "s-1", "work", now_ms=1)
    memory.fold("agent_job", job_key("goal-1"), job)
    assert memory.claimable(turn()) is None
    assert memory.claimable(turn(kind="orchestrator_task")) is not None
    assert memory.job("goal-1") == job


def test_a_session_and_what_is_wanted_of_it_stand_side_by_side() -> None:
    memory = Memory(0)
    session = new_session("s-1", now_ms=1)
    wanted = asked("s-1", None, pause=True, now_ms=2)
    memory.fold("agent_session", session_record_key("s-1"), session)
    memory.fold("agent_session_desired", desired_key("s-1"), wanted)
    assert memory.session("s-1") == session
    assert memory.desired("s-1") == wanted


def test_a_tombstone_forgets_its_key_whatever_stood_there() -> None:
    memory = Memory(0)
    done = ended_goal(goal(), "cancelled", executed_by="api", now_ms=2)
    memory.fold("agent_goal", goal_key("goal-1"), done)
    memory.fold("agent_session", session_record_key("s-1"), new_session("s-1", now_ms=1))
    memory.fold("agent_goal", goal_key("goal-1"), None)
    memory.fold("agent_session", session_record_key("s-1"), None)
    assert memory.claimable(turn()) is None
    assert memory.session("s-1") is None


def test_a_kind_of_a_later_release_says_nothing() -> None:
    memory = Memory(0)
    memory.fold("agent_dream", "dream:1", {"fence": 99})
    assert memory.next_fence == 1


def test_the_newest_of_each_kind_are_kept_and_it_is_known_that_others_were_forgotten() -> None:
    memory = Memory(0, kept_max=2)
    for name in ("a", "b"):
        memory.fold("agent_job", job_key(name), new_job(name, "s", "", now_ms=1))
        memory.fold("agent_session", session_record_key(name), new_session(name, now_ms=1))
    assert (memory.forgot_records, memory.forgot_sessions) == (False, False)
    memory.fold("agent_job", job_key("a"), new_job("a", "s", "", now_ms=2))
    memory.fold("agent_job", job_key("c"), new_job("c", "s", "", now_ms=1))
    assert (memory.forgot_records, memory.forgot_sessions) == (True, False)
    assert [name for name in "abc" if memory.job(name)] == ["a", "c"]
    memory.fold("agent_session", session_record_key("c"), new_session("c", now_ms=1))
    assert memory.forgot_sessions
    assert [name for name in "abc" if memory.session(name)] == ["b", "c"]


def test_ends_are_forgotten_without_a_trace() -> None:
    memory = Memory(0, kept_max=1)
    for name in ("a", "b"):
        job = claimed_job(new_job(name, "s", "", now_ms=1), holder(1), now_ms=1)
        ended = ended_job(job, "completed", executed_by="w", now_ms=2)
        memory.fold("agent_job", job_key(name), ended)
    kind = "orchestrator_task"
    assert memory.claimable(turn(kind=kind, payload_ref="a")) is None
    assert memory.claimable(turn(kind=kind, payload_ref="b")) is not None
    assert not memory.forgot_records


def test_what_belongs_to_a_turn_that_has_not_ended_is_not_forgotten() -> None:
    memory = Memory(0, kept_max=1)
    envelope = turn(kind="orchestrator_task", payload_ref="a", session_id="a")
    memory.pin(envelope)
    memory.pin(envelope)
    for name in ("a", "b", "c"):
        memory.fold("agent_job", job_key(name), new_job(name, "s", "", now_ms=1))
        memory.fold("agent_session", session_record_key(name), new_session(name, now_ms=1))
        memory.fold("agent_session_desired", desired_key(name), asked(name, None, now_ms=1))
    kept = [name for name in "abc" if memory.job(name)]
    assert kept == [name for name in "abc" if memory.session(name)] == ["a", "c"]
    assert memory.desired("a") is not None
    memory.unpin(envelope)
    memory.fold("agent_job", job_key("d"), new_job("d", "s", "", now_ms=1))
    assert memory.job("a") is not None, "it is pinned twice"
    memory.unpin(envelope)
    for name in ("e", "f"):
        memory.fold("agent_job", job_key(name), new_job(name, "s", "", now_ms=1))
    assert [name for name in "abcdef" if memory.job(name)] == ["f"]


def test_without_all_records_a_session_may_have_more_than_is_known() -> None:
    memory = Memory(0, since_ms=100)
    assert memory.forgot_records
    assert memory.may_lack_session("s1"), "it is not there"
    memory.fold("agent_session", session_record_key("s1"), new_session("s1", now_ms=100))
    assert not memory.may_lack_session("s1"), "nothing of it is older"
    memory.fold("agent_session", session_record_key("s2"), new_session("s2", now_ms=99))
    assert memory.may_lack_session("s2"), "a wish may be older than what was read"
    memory.no_wish("s2")
    assert not memory.may_lack_session("s2")
    assert not Memory(0).may_lack_session("s3")


def test_a_wish_that_had_to_go_makes_every_session_doubtful() -> None:
    memory = Memory(0, kept_max=1)
    memory.fold("agent_session", session_record_key("s"), new_session("s", now_ms=1))
    for name in ("s", "t"):
        memory.fold("agent_session_desired", desired_key(name), asked(name, None, now_ms=1))
    assert memory.may_lack_session("s")
