"""The loop of a goal: what each iteration leads to, whoever runs it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.codec import Codec
from streams.core.turn.goal_loop import (
    BETWEEN_ITERATIONS_MS,
    ITERATIONS_KEPT_MAX,
    End,
    Iterate,
    iterated,
    next_step,
)
from streams.core.turn.goal_spec import parse_goal_spec
from streams.core.turn.record import RESULT_CHARS_MAX, Holder, claimed_goal, new_goal
from streams.core.wire import AgentGoal, GoalIteration

HOLDER = Holder(token="w:1", host="h", fence=1)


def goal(**spec: Any) -> AgentGoal:
    pending = new_goal("g", "s", parse_goal_spec({"objective": "win", **spec}), now_ms=0)
    return claimed_goal(pending, HOLDER, job_id="j", now_ms=0)


def done(
    number: int, validated: bool | None = None, summary: str = "", output: str = ""
) -> GoalIteration:
    return {
        "number": number,
        "summary": summary,
        "validated": validated,
        "exit_code": None if validated is None else int(not validated),
        "output": output,
        "started_at_ms": number * 10,
        "ended_at_ms": number * 10 + 5,
    }


def step(found: AgentGoal, *, pause: bool = False, kill: bool = False) -> Iterate | End:
    return next_step(found, pause_requested=pause, kill_requested=kill)


def run(found: AgentGoal, *validations: bool | None) -> AgentGoal:
    for validated in validations:
        planned = step(found)
        assert isinstance(planned, Iterate)
        found = iterated(found, done(planned.number, validated))
    return found


def test_8_16_a_goal_whose_validation_passes_is_completed_by_one_iteration() -> None:
    found = run(goal(validation_cmd="true"), True)

    assert (found["status"], found["iteration_count"]) == ("completed", 1)
    assert found["error"] is None


def test_a_goal_without_validation_is_completed_by_its_third_iteration() -> None:
    assert run(goal(), None, None)["status"] == "running"
    assert run(goal(), None, None, None)["status"] == "completed"


def test_a_goal_without_validation_and_fewer_iterations_is_completed_by_its_last() -> None:
    assert run(goal(max_iterations=1), None)["status"] == "completed"


def test_a_validation_that_did_not_end_passes_nothing() -> None:
    found = run(goal(validation_cmd="make"), None, None, None, None)

    assert found["status"] == "running"


def test_a_callable_validates_a_goal_that_has_no_command() -> None:
    assert run(goal(), False, False, False, False)["status"] == "running"
    assert run(goal(), False, True)["status"] == "completed"


def test_a_goal_that_is_not_reached_has_failed_after_its_last_iteration() -> None:
    found = run(goal(validation_cmd="false", max_iterations=2), False, False)

    assert (found["status"], found["error"]) == ("failed", "not reached in 2 iterations")


def test_a_goal_may_be_reached_by_its_last_iteration() -> None:
    found = run(goal(validation_cmd="make", max_iterations=2), False, True)

    assert (found["status"], found["error"]) == ("completed", None)


@pytest.mark.parametrize(
    ("pause", "kill", "end"),
    [
        (True, False, End("paused")),
        (False, True, End("cancelled", "killed on request")),
        (True, True, End("cancelled", "killed on request")),
    ],
)
def test_what_people_want_is_heeded_before_each_iteration(
    pause: bool, kill: bool, end: End
) -> None:
    assert step(goal(), pause=pause, kill=kill) == end
    assert step(run(goal(), None), pause=pause, kill=kill) == end


def test_there_is_a_wait_between_iterations_and_none_before_the_first() -> None:
    assert step(goal()) == Iterate(1, 0)
    assert step(run(goal(), None)) == Iterate(2, BETWEEN_ITERATIONS_MS)


def test_whoever_takes_a_goal_over_goes_on_where_its_record_says() -> None:
    before = run(goal(validation_cmd="make"), False, False)

    after = claimed_goal(before, Holder(token="w:2", host="i", fence=2), job_id="j", now_ms=99)

    assert step(after) == Iterate(3, BETWEEN_ITERATIONS_MS)


def test_a_goal_without_iterations_left_fails_without_another() -> None:
    spent: AgentGoal = {**goal(max_iterations=1), "iteration_count": 1}

    assert step(spent) == End("failed", "not reached in 1 iterations")


def test_each_iteration_is_recorded_and_the_newest_are_kept() -> None:
    found = run(goal(validation_cmd="make", max_iterations=30), *[False] * 25)

    assert found["iteration_count"] == 25
    assert [each["number"] for each in found["iterations"]] == list(range(6, 26))
    assert len(found["iterations"]) == ITERATIONS_KEPT_MAX
    assert found["updated_at_ms"] == 255


def test_a_goal_at_its_bounds_is_a_record_that_fits() -> None:
    wide = "\U0001f600"
    found = goal(
        objective=wide * 65_536, end_state="e" * 37_852, validation_cmd="make", max_iterations=30
    )
    for number in range(1, 26):
        found = iterated(found, done(number, False, wide * (RESULT_CHARS_MAX + 7)))

    assert len(found["iterations"][-1]["summary"]) == RESULT_CHARS_MAX
    assert len(Codec().encode("agent_goal", found)) < 900_000


def test_nothing_follows_an_end_and_iterations_leave_no_gap() -> None:
    with pytest.raises(AssertionError):
        iterated(goal(), done(2))
    ended = run(goal(validation_cmd="true"), True)
    with pytest.raises(AssertionError):
        step(ended)
    with pytest.raises(AssertionError):
        iterated(ended, done(2))


@given(
    command=st.sampled_from([None, "make"]),
    iterations_max=st.integers(1, 6),
    validations=st.lists(st.sampled_from([True, False, None]), min_size=6, max_size=6),
)
def test_every_goal_ends_within_its_iterations(
    command: str | None, iterations_max: int, validations: list[bool | None]
) -> None:
    found = goal(validation_cmd=command, max_iterations=iterations_max)
    for validated in validations:
        if found["status"] != "running":
            break
        found = run(found, validated)

    passed = [at for at, validated in enumerate(validations, 1) if validated]
    if command is None:
        # Without a word about an iteration the third one, or the last, is the end.
        last = min(3, iterations_max)
        passed += [at for at in range(last, 7) if validations[at - 1] is None]
    first = min(passed, default=7)
    expected = ("completed", first) if first <= iterations_max else ("failed", iterations_max)
    assert (found["status"], found["iteration_count"]) == expected
