"""An owner of a partition at work: what it begins and says, and what one transaction holds."""

from __future__ import annotations

from typing import Any

import pytest

from streams.core.turn import words
from streams.core.turn.bookmark import parse_bookmark
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError
from streams.core.turn.gathering import Batch
from streams.core.turn.goal_loop import iterated
from streams.core.turn.held import Held
from streams.core.turn.memory import Memory
from streams.core.turn.owner import LOOK_AGAIN_MS, PENDING_MAX, Begun, Owner
from streams.core.turn.record import (
    Holder,
    claimed_job,
    ended_job,
    goal_key,
    job_key,
    new_goal,
    new_job,
    session_record_key,
)
from streams.core.turn.session import new_session
from streams.core.wire import AgentGoal, GoalIteration
from tests.support.turn_owner import NOW, SPEC, at, owner


def turn(job_id: str = "j1", session_id: str = "s1", **fields: Any) -> AgentTurnEnvelope:
    known: dict[str, Any] = {"kind": "orchestrator_task", "payload_ref": job_id}
    return AgentTurnEnvelope(
        job_id=job_id, session_id=session_id, enqueued_at_ms=1, **(known | fields)
    )


def learn_task(one: Owner, job_id: str = "j1", session_id: str = "s1") -> None:
    one.learn("agent_job", job_key(job_id), new_job(job_id, session_id, "", now_ms=1))


def learn_goal(one: Owner) -> None:
    one.learn("agent_goal", goal_key("g1"), new_goal("g1", "s1", SPEC, now_ms=1))


def learn_session(one: Owner, session_id: str = "s1") -> None:
    one.learn("agent_session", session_record_key(session_id), new_session(session_id, now_ms=1))


def best(one: Owner, now_ms: int = NOW) -> Held:
    held = one.best(now_ms)
    assert held is not None
    return held


def begun(one: Owner, envelope: AgentTurnEnvelope | None = None, offset: int = 0) -> Held:
    """Take a turn and begin it."""
    one.take(envelope or turn(), at(offset), arrived_ms=1)
    held = best(one)
    assert one.begin(held, NOW) is Begun.RUN
    return held


def said(batch: Batch) -> list[str]:
    return [output.kind for output, _ in batch.outputs]


def value(batch: Batch, kind: str) -> Any:
    return [output.value for output, _ in batch.outputs if output.kind == kind][-1]


def iteration(number: int) -> GoalIteration:
    return {
        "number": number,
        "summary": f"did {number}",
        "validated": None,
        "exit_code": None,
        "output": "",
        "started_at_ms": NOW,
        "ended_at_ms": NOW,
    }


def test_a_claim_says_who_runs_the_turn_and_moves_no_offset() -> None:
    one = owner()
    learn_task(one)
    learn_session(one)
    begun(one)
    batch = one.batch()
    assert said(batch) == ["turn_claimed", "agent_job", "agent_session"]
    claim = value(batch, "turn_claimed")
    assert (claim["attempt"], claim["claimed_by"], claim["fence"]) == (1, "w", 1)
    job = value(batch, "agent_job")
    assert (job["status"], job["claimed_by"], job["dispatch_host"]) == ("running", "w", "h")
    assert value(batch, "agent_session")["status"] == "running"
    assert batch.offset == 0
    assert all(output.partition == 2 and cause == at(0) for output, cause in batch.outputs)


def test_an_end_and_the_next_claim_of_the_session_go_as_one_with_the_offset() -> None:
    one = owner()
    learn_task(one, "j1")
    learn_task(one, "j2")
    learn_session(one)
    held = begun(one)
    one.take(turn("j2"), at(1), arrived_ms=1)
    assert one.best(NOW) is None, "a session's turns run one after another"
    one.batch()
    one.end(held, "completed", result="well", now_ms=NOW + 5)
    assert one.begin(best(one), NOW + 5) is Begun.RUN
    batch = one.batch()
    assert said(batch) == [
        "agent_job",
        "turn_finished",
        "turn_claimed",
        "agent_job",
        "agent_session",
    ]
    assert batch.offset == 1
    assert batch.outcomes == ["completed"]
    finished = value(batch, "turn_finished")
    assert (finished["outcome"], finished["started_at_ms"]) == ("completed", NOW)
    session = value(batch, "agent_session")
    assert (session["status"], session["said"][-1]["content"]) == ("running", "well")
    assert session["said"][-1]["role"] == "assistant"


def test_8_17_a_turn_whose_task_has_ended_is_skipped_only_when_all_records_were_read() -> None:
    one = owner()
    job = claimed_job(
        new_job("j1", "s1", "", now_ms=1), Holder(token="x", host="h", fence=0), now_ms=1
    )
    done = ended_job(job, "completed", executed_by="x", now_ms=2)
    one.learn("agent_job", job_key("j1"), done)
    one.take(turn(), at(0), arrived_ms=1)
    held = best(one)
    assert one.begin(held, NOW) is Begun.UNSURE
    assert not one.is_due
    assert not one.is_known(held)
    one.put_back(held, certain=True)
    assert one.begin(best(one), NOW) is Begun.DONE
    finished = value(batch := one.batch(), "turn_finished")
    assert (finished["outcome"], finished["error"]) == ("skipped", "terminal")
    assert finished["record_status"] == "completed"
    assert batch.offset == 1


def test_a_record_that_comes_late_is_run_and_not_skipped() -> None:
    one = owner()
    one.take(turn(), at(0), arrived_ms=1)
    held = best(one)
    assert one.begin(held, NOW) is Begun.UNSURE
    learn_task(one)
    assert one.is_known(held)
    one.put_back(held)
    assert one.begin(best(one), NOW) is Begun.RUN


def test_a_turn_without_a_record_is_skipped_when_that_is_certain() -> None:
    one = owner()
    one.take(turn(), at(0), arrived_ms=1)
    one.begin(held := best(one), NOW)
    one.put_back(held, certain=True)
    assert one.begin(best(one), NOW) is Begun.DONE
    assert value(one.batch(), "turn_finished")["error"] == "unknown_record"


def test_8_20_a_turn_whose_deadline_has_passed_fails_without_running() -> None:
    one = owner()
    learn_task(one)
    one.take(turn(deadline_ms=NOW - 1), at(0), arrived_ms=1)
    assert one.begin(best(one), NOW) is Begun.DONE
    batch = one.batch()
    assert said(batch) == ["agent_job", "turn_finished"]
    assert batch.outcomes == ["expired"]
    job = value(batch, "agent_job")
    assert job["status"] == "failed"
    assert "deadline" in job["error"]


def test_a_second_turn_of_a_job_is_skipped_though_its_record_would_let_it_run() -> None:
    one = owner()
    learn_goal(one)
    envelope = turn(kind="goal_loop", payload_ref="g1")
    held = begun(one, envelope)
    one.end(held, "paused", now_ms=NOW)
    one.learn("agent_goal", goal_key("g1"), new_goal("g1", "s1", SPEC, now_ms=1))
    one.take(envelope, at(1), arrived_ms=1)
    assert one.begin(best(one), NOW) is Begun.DONE
    assert value(one.batch(), "turn_finished")["outcome"] == "skipped"


def test_a_second_turn_of_a_job_is_skipped_by_the_next_owner_as_well() -> None:
    envelope = turn(kind="goal_loop", payload_ref="g1")
    paused = words.finished(
        envelope,
        at(0),
        Holder(token="x", host="h", fence=1),
        outcome="completed",
        record_status="paused",
        now_ms=1,
    )
    memory = Memory(0)
    memory.fold(paused.kind, paused.key, paused.value)
    one = owner(memory)
    learn_goal(one)  # as it was resumed: it would let the turn run
    one.take(envelope, at(0), arrived_ms=1)
    one.take(envelope, at(1), arrived_ms=1)
    assert one.begin(best(one), NOW) is Begun.DONE
    said = value(one.batch(), "turn_finished")
    assert (said["outcome"], said["error"]) == ("skipped", "a turn of this job has ended before")


def test_jobs_that_ended_are_known_up_to_a_bound() -> None:
    one = owner(recent_max=1)
    for number in (1, 2):
        learn_task(one, f"j{number}")
        one.end(begun(one, turn(f"j{number}"), number - 1), "completed", now_ms=NOW)
    one.take(turn("j1"), at(2), arrived_ms=1)
    assert one.begin(best(one), NOW) is Begun.UNSURE  # its record knows as well


def test_8_18_a_record_that_another_owner_claims_waits_and_is_not_acked() -> None:
    one = owner()
    job = claimed_job(
        new_job("j1", "s1", "", now_ms=1), Holder(token="x", host="h", fence=9), now_ms=NOW
    )
    one.learn("agent_job", job_key("j1"), job)
    one.take(turn(), at(0), arrived_ms=1)
    assert one.begin(best(one), NOW) is Begun.WAITS
    assert not one.is_due
    assert one.best(NOW) is None
    assert one.lanes.due_ms() == NOW + LOOK_AGAIN_MS
    assert one.best(NOW + LOOK_AGAIN_MS) is not None


def test_a_record_that_runs_for_another_session_is_not_run_beside_it_however_long() -> None:
    one = owner()
    learn_task(one)
    learn_session(one)
    begun(one)
    one.take(turn("j2", "s2", payload_ref="j1"), at(1), arrived_ms=1)
    after_days = NOW + 7 * 24 * 3_600_000
    assert one.begin(best(one, after_days), after_days) is Begun.WAITS
    assert said(one.batch()).count("turn_claimed") == 1


def test_a_claim_of_the_owner_before_is_dead_at_once() -> None:
    memory = Memory(0)
    job = claimed_job(
        new_job("j1", "s1", "", now_ms=1), Holder(token="x", host="h", fence=7), now_ms=NOW
    )
    memory.fold("agent_job", job_key("j1"), job)
    one = owner(memory)
    assert one.holder.fence == 8
    begun(one)


def test_a_turn_that_the_owner_before_had_begun_is_begun_once_more_than_by_that_one() -> None:
    before = Holder(token="x", host="h", fence=7)
    begun_twice = words.claimed(turn(), at(0), before, attempt=2, now_ms=1)
    memory = Memory(0)
    memory.fold(begun_twice.kind, begun_twice.key, begun_twice.value)
    one = owner(memory)
    learn_task(one, "j1")
    begun(one)
    claim = value(one.batch(), "turn_claimed")
    assert (claim["attempt"], claim["fence"]) == (3, 8)


def test_what_is_no_turn_goes_to_the_dead_letters_with_the_offset() -> None:
    one = owner()
    error = EnvelopeError(("session_id is missing, expected a text",), job_id="j9")
    one.bury(error, at(0), key=b"k", raw=b"{}", timestamp_ms=3)
    batch = one.batch()
    assert said(batch) == ["turn_dead_lettered"]
    assert batch.offset == 1
    letter = value(batch, "turn_dead_lettered")
    assert (letter["offset"], letter["raw"], letter["executed_by"]) == (0, b"{}", "w")


def test_so_much_to_write_holds_back_reading_and_beginning() -> None:
    one = owner()
    learn_task(one)
    one.take(turn(), at(0), arrived_ms=1)
    error = EnvelopeError(("no",))
    for number in range(PENDING_MAX):
        assert one.wants_more
        one.bury(error, at(number + 1), key=None, raw=None, timestamp_ms=0)
        if not one.lanes.wants_more:
            break
    assert not one.wants_more
    assert one.is_full == (one.best(NOW) is None)
    one.batch()
    assert one.best(NOW) is not None


def goal_run() -> tuple[Owner, Held]:
    one = owner()
    learn_goal(one)
    return one, begun(one, turn(kind="goal_loop", payload_ref="g1"))


def iterate(one: Owner, held: Held, number: int) -> AgentGoal:
    assert held.goal is not None
    goal = iterated(held.goal, iteration(number))
    assert one.write(held, goal) == (goal["status"] == "running")
    return goal


def test_each_iteration_is_written_and_the_last_one_with_the_end() -> None:
    one, held = goal_run()
    one.batch()
    iterate(one, held, 1)
    assert said(one.batch()) == ["agent_goal"]
    iterate(one, held, 2)
    one.batch()
    last = iterate(one, held, 3)
    assert last["status"] == "completed"
    assert not one.is_due
    one.end(held, "completed", goal=last, now_ms=NOW)
    batch = one.batch()
    assert said(batch) == ["agent_goal", "turn_finished"]
    goal = value(batch, "agent_goal")
    assert (goal["status"], goal["executed_by"], goal["result"]) == ("completed", "w", "did 3")


@pytest.mark.parametrize("status", ["paused", "cancelled"])
def test_a_goal_that_is_stopped_on_request_is_a_turn_that_completed(status: Any) -> None:
    one, held = goal_run()
    one.end(held, status, error="on request", now_ms=NOW)
    batch = one.batch()
    assert batch.outcomes == ["completed"]
    assert value(batch, "agent_goal")["status"] == status
    assert value(batch, "turn_finished")["record_status"] == status


def test_what_is_given_back_waits_again_with_what_was_written_of_it() -> None:
    one, held = goal_run()
    learn_session(one)
    iterate(one, held, 1)
    iterate(one, held, 2)
    iterate(one, held, 3)
    one.batch()
    one.give_back(held, "handover", NOW)
    batch = one.batch()
    assert said(batch) == ["turn_claim_released", "agent_goal", "agent_session"]
    goal = value(batch, "agent_goal")
    assert (goal["status"], goal["owner_host"], goal["iteration_count"]) == ("pending", "", 2)
    assert value(batch, "agent_session")["status"] == "queued"
    assert batch.offset == 0
    assert one.begin(best(one), NOW) is Begun.RUN
    assert value(one.batch(), "turn_claimed")["attempt"] == 2


def test_what_gives_itself_back_waits_a_while() -> None:
    one, held = goal_run()
    one.give_back(held, "interrupted", NOW, not_before_ms=NOW + 1)
    assert one.best(NOW) is None
    assert one.best(NOW + 1) is not None


def test_a_session_is_written_once_a_batch_as_it_stands_then() -> None:
    one = owner()
    learn_session(one)
    for number in range(3):
        learn_task(one, f"j{number}")
        held = begun(one, turn(f"j{number}"), number)
        one.end(held, "completed", result=f"r{number}", now_ms=NOW)
    batch = one.batch()
    (session,) = [out.value for out, _ in batch.outputs if out.kind == "agent_session"]
    assert session is not None
    assert [each["content"] for each in session["said"]] == ["r0", "r1", "r2"]
    assert session["status"] == "completed"


def test_the_bookmark_follows_what_is_told_of_the_claims_end() -> None:
    one = owner()
    learn_task(one)
    held = begun(one)
    assert parse_bookmark(one.batch().metadata) == (5, 1, None)
    one.end(held, "completed", now_ms=NOW)
    one.batch()
    assert one.said_since == 2
    one.claims_end_at(7)
    assert one.said_since == 0
    learn_task(one, "j2")
    begun(one, turn("j2"), 1)
    assert parse_bookmark(one.batch().metadata) == (7, 1, None)


def test_a_turn_whose_end_is_loaded_is_not_run_and_its_offset_is_committed() -> None:
    memory = Memory(0)
    said_of_it = words.finished(
        turn(),
        at(0),
        Holder(token="x", host="h", fence=1),
        outcome="completed",
        record_status="completed",
        now_ms=1,
    )
    memory.fold(said_of_it.kind, said_of_it.key, said_of_it.value)
    one = owner(memory)
    one.take(turn(), at(0), arrived_ms=1)
    assert one.best(NOW) is None
    assert one.is_due
    batch = one.batch()
    assert (batch.outputs, batch.offset) == ([], 1)
    assert not one.is_due


def test_a_session_that_memory_may_have_forgotten_is_looked_for_first() -> None:
    one = owner(Memory(0, kept_max=1))
    learn_session(one, "s1")
    learn_session(one, "s2")
    learn_task(one)
    one.take(turn(), at(0), arrived_ms=1)
    held = best(one)
    assert one.begin(held, NOW) is Begun.UNSURE
    learn_session(one, "s1")
    assert one.is_known(held)
    one.put_back(held, certain=True)
    assert one.begin(best(one), NOW) is Begun.RUN
