"""An owner of turns whose sessions are busy: what each ends as, what is written, and what runs."""

from __future__ import annotations

from typing import Any

import pytest

from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.gathering import Batch
from streams.core.turn.held import Held
from streams.core.turn.memory import Memory
from streams.core.turn.owner import Begun, Owner
from streams.core.turn.policies import rejected_for
from streams.core.turn.record import (
    Holder,
    claimed_job,
    ended_goal,
    ended_job,
    goal_key,
    job_key,
    new_goal,
    new_job,
    session_record_key,
)
from streams.core.turn.session import new_session
from streams.core.wire import AgentJob
from tests.support.turn_owner import NOW, SPEC, at, owner


def task(job_id: str) -> AgentJob:
    return new_job(job_id, "s1", "", now_ms=1)


def take(one: Owner, offset: int, *, record: bool = True, **fields: Any) -> None:
    """Take the turn of a task `t<offset>`."""
    job_id = f"t{offset}"
    if record:
        one.learn("agent_job", job_key(job_id), task(job_id))
    known: dict[str, Any] = {"job_id": job_id, "payload_ref": job_id, "session_id": "s1"}
    known |= {"kind": "orchestrator_task", "enqueued_at_ms": 1}
    one.take(AgentTurnEnvelope(**(known | fields)), at(offset), arrived_ms=1)


def run(one: Owner) -> Held:
    held = one.best(NOW)
    assert held is not None
    assert one.begin(held, NOW) is Begun.RUN
    return held


def end_overruled(one: Owner) -> list[Begun]:
    found: list[Begun] = []
    while (held := one.best_overruled()) is not None:
        found.append(one.end_overruled(held, NOW))
    return found


def ends(batch: Batch) -> list[tuple[int, str, str | None]]:
    """Offset, outcome and error of each turn that ends with a batch."""
    values: list[Any] = [out.value for out, _ in batch.outputs if out.kind == "turn_finished"]
    return [(each["turn_offset"], each["outcome"], each["error"]) for each in values]


def last(batch: Batch, key: str) -> Any:
    return [output.value for output, _ in batch.outputs if output.key == key][-1]


def test_a_rejected_turn_fails_at_once_and_leaves_its_session_as_it_is() -> None:
    one = owner()
    one.learn("agent_session", session_record_key("s1"), new_session("s1", now_ms=1))
    take(one, 0)
    held = run(one)
    one.batch()
    take(one, 1, when_busy="reject")

    assert one.best(NOW) is None
    end_overruled(one)
    batch = one.batch()
    reason = "rejected: turn t0 of its session had not ended"
    assert ends(batch) == [(1, "rejected", reason)]
    assert (batch.outcomes, batch.offset) == (["rejected"], 0)
    job = last(batch, job_key("t1"))
    assert (job["status"], job["error"], job["attempt"]) == ("failed", reason, 0)
    assert [output.kind for output, _ in batch.outputs] == ["agent_job", "turn_finished"]
    one.end(held, "completed", now_ms=NOW)
    assert one.batch().offset == 2


def test_an_interrupt_ends_what_waits_at_once_and_what_runs_when_its_body_has_ended() -> None:
    one = owner()
    one.learn("agent_session", session_record_key("s1"), new_session("s1", now_ms=1))
    take(one, 0)
    held = run(one)
    take(one, 1)
    one.batch()
    take(one, 2, when_busy="interrupt")

    assert one.overrule(NOW) == [held]
    assert one.overrule(NOW) == [], "told once"
    end_overruled(one)
    assert ends(one.batch()) == [(1, "interrupted", "interrupted by t2")]
    assert one.best(NOW) is None
    one.end(held, "failed", result="half", error="told to end", now_ms=NOW)
    assert run(one).at.offset == 2
    batch = one.batch()
    assert ends(batch) == [(0, "interrupted", "interrupted by t2")]
    job = last(batch, job_key("t0"))
    assert (job["status"], job["error"], job["result"]) == (
        "cancelled",
        "interrupted by t2",
        None,
    )
    assert last(batch, session_record_key("s1"))["status"] == "running"
    assert batch.outcomes == ["interrupted"]


def test_what_was_completed_all_the_same_has_completed() -> None:
    one = owner()
    take(one, 0)
    held = run(one)
    take(one, 1, when_busy="interrupt")
    one.overrule(NOW)

    one.end(held, "completed", result="done", now_ms=NOW)

    assert ends(one.batch()) == [(0, "completed", None)]


@pytest.mark.parametrize(("status", "outcome"), [("failed", "failed"), ("running", "interrupted")])
def test_a_goal_s_last_iteration_says_how_it_ended(status: Any, outcome: str) -> None:
    one = owner()
    one.learn("agent_goal", goal_key("g1"), new_goal("g1", "s1", SPEC, now_ms=1))
    take(one, 0, kind="goal_loop", payload_ref="g1")
    held = run(one)
    take(one, 1, when_busy="interrupt")
    one.overrule(NOW)
    assert held.goal is not None

    one.end(held, "failed", error="x", goal={**held.goal, "status": status}, now_ms=NOW)

    batch = one.batch()
    assert [each[1] for each in ends(batch)] == [outcome]
    expected = {"failed": "failed", "interrupted": "cancelled"}[outcome]
    assert last(batch, goal_key("g1"))["status"] == expected


def test_a_record_that_comes_late_delays_an_interrupt_and_a_rejection() -> None:
    one = owner()
    take(one, 0)
    held = run(one)
    take(one, 1, record=False, when_busy="interrupt")
    take(one, 2, record=False, when_busy="reject")

    assert one.overrule(NOW) == []
    assert end_overruled(one) == [Begun.UNSURE]
    one.batch()
    for job_id in ("t1", "t2"):
        one.learn("agent_job", job_key(job_id), task(job_id))
    assert one.overrule(NOW) == [held]
    unsure = one._held[2]
    assert one.is_known(unsure)
    one.put_back(unsure)
    end_overruled(one)
    batch = one.batch()
    assert ends(batch) == [(2, "rejected", "rejected: turn t0 of its session had not ended")]
    assert last(batch, job_key("t2"))["status"] == "failed"


def test_a_rejected_turn_without_a_record_ends_when_that_is_certain() -> None:
    one = owner()
    take(one, 0)
    run(one)
    one.batch()
    take(one, 1, record=False, when_busy="reject")

    end_overruled(one)
    one.put_back(one._held[1], certain=True)
    end_overruled(one)

    batch = one.batch()
    assert [each[1] for each in ends(batch)] == ["rejected"]
    assert len(batch.outputs) == 1


@pytest.mark.parametrize("when_busy", ["reject", "interrupt"])
def test_a_second_turn_of_a_job_that_has_ended_overrules_nobody(when_busy: str) -> None:
    one = owner()
    take(one, 0)
    one.end(run(one), "completed", now_ms=NOW)
    take(one, 1)
    held = run(one)
    take(one, 2, job_id="t0", when_busy=when_busy)

    assert one.overrule(NOW) == []
    assert one.best_overruled() is None
    one.batch()
    one.end(held, "completed", now_ms=NOW)
    again = one.best(NOW)
    assert again is not None
    assert one.begin(again, NOW) is Begun.DONE
    assert [each[:2] for each in ends(one.batch())] == [(1, "completed"), (2, "skipped")]


@pytest.mark.parametrize("status", ["failed", "paused"])
def test_a_turn_that_would_be_skipped_interrupts_nobody(status: Any) -> None:
    one = owner()
    take(one, 0)
    run(one)
    take(one, 1, when_busy="interrupt", kind="goal_loop", payload_ref="g1")
    goal = new_goal("g1", "s1", SPEC, now_ms=1)
    one.learn("agent_goal", goal_key("g1"), ended_goal(goal, status, executed_by="", now_ms=2))
    take(one, 2, when_busy="interrupt", deadline_ms=NOW - 1)

    assert one.overrule(NOW) == []


def test_the_record_of_a_rejected_turn_is_left_to_another_turn_of_it() -> None:
    one = owner()
    take(one, 0)
    run(one)
    take(one, 1)
    one.batch()
    take(one, 2, job_id="again", payload_ref="t1", when_busy="reject")

    end_overruled(one)

    batch = one.batch()
    assert [each[1] for each in ends(batch)] == ["rejected"]
    assert [output.kind for output, _ in batch.outputs] == ["turn_finished"]


@pytest.mark.parametrize("second", ["enqueue", "reject", "interrupt"])
def test_the_record_of_a_rejected_turn_fails_though_its_job_was_enqueued_twice(second: Any) -> None:
    one = owner()
    take(one, 0)
    first = run(one)
    one.batch()
    take(one, 1, when_busy="reject")
    take(one, 2, record=False, when_busy=second, job_id="t1", payload_ref="t1")
    end_overruled(one)
    batch = one.batch()
    assert ends(batch)[0] == (1, "rejected", rejected_for("t0"))
    assert last(batch, job_key("t1"))["status"] == "failed", "its second turn never runs"
    one.end(first, "completed", now_ms=NOW)
    while (held := one.best(NOW)) is not None:
        assert one.begin(held, NOW) is Begun.DONE
    assert [each[1] for each in ends(batch)[1:] + ends(one.batch())].count("skipped") == 1


def test_an_interrupted_turn_of_a_record_that_has_ended_is_skipped() -> None:
    one = owner()
    take(one, 0)
    run(one)
    take(one, 1)
    by = Holder(token="x", host="h", fence=0)
    done = ended_job(claimed_job(task("t1"), by, now_ms=1), "completed", executed_by="x", now_ms=2)
    one.learn("agent_job", job_key("t1"), done)
    one.batch()
    take(one, 2, when_busy="interrupt")
    one.overrule(NOW)

    assert end_overruled(one) == [Begun.UNSURE]
    one.put_back(one._held[1], certain=True)
    end_overruled(one)
    assert ends(one.batch()) == [(1, "skipped", "terminal")]


def test_a_hand_over_gives_back_what_is_interrupted_and_its_next_owner_ends_it() -> None:
    one = owner()
    take(one, 0)
    held = run(one)
    take(one, 1, when_busy="interrupt")
    one.overrule(NOW)
    one.lanes.stop()
    one.give_back(held, "handover", NOW)
    memory = Memory(0)
    for output, _ in one.batch().outputs:
        memory.fold(output.kind, output.key, output.value)

    two = owner(memory)
    take(two, 0, record=False)
    take(two, 1, when_busy="interrupt")

    assert two.overrule(NOW) == []
    assert end_overruled(two) == [Begun.DONE]
    assert ends(two.batch()) == [(0, "interrupted", "interrupted by t1")]
    assert run(two).at.offset == 1


def test_an_owner_that_takes_over_finds_the_rejection_and_the_end_or_decides_anew() -> None:
    one = owner()
    take(one, 0)
    held = run(one)
    take(one, 1, when_busy="reject")
    end_overruled(one)
    one.end(held, "completed", now_ms=NOW)

    said = [out for out, _ in one.batch().outputs if out.kind == "turn_finished"]

    order: list[Any] = [each.value for each in said]
    assert [each["turn_offset"] for each in order] == [1, 0], "the rejection is not the later one"


def test_a_second_turn_of_a_job_that_runs_does_not_end_it() -> None:
    one = owner()
    take(one, 0)
    held = run(one)
    take(one, 1, job_id="t0", payload_ref="t0")
    take(one, 2, job_id="again", payload_ref="t0")
    take(one, 3, when_busy="interrupt")
    one.batch()

    assert one.overrule(NOW) == [held]
    end_overruled(one)
    batch = one.batch()
    assert ends(batch) == [(2, "interrupted", "interrupted by t3")]
    assert len(batch.outputs) == 1, "the record is for the turn that runs it to end"
    one.end(held, "completed", now_ms=NOW)
    again = one.best(NOW)
    assert again is not None
    assert one.begin(again, NOW) is Begun.DONE
    assert [each[:2] for each in ends(one.batch())] == [(0, "completed"), (1, "skipped")]
