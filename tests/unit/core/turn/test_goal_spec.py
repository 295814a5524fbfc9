"""A goal's specification: read whole, or refused with every reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.turn.goal_spec import (
    CONSTRAINTS_MAX,
    ITERATIONS_MAX,
    OBJECTIVE_CHARS_MAX,
    GoalSpecError,
    parse_goal_spec,
)

WHOLE: dict[str, Any] = {
    "objective": "all tests pass",
    "end_state": "green",
    "validation_cmd": "make test",
    "max_iterations": 5,
    "constraints": ["change no test"],
}


def problems_of(found: object) -> tuple[str, ...]:
    with pytest.raises(GoalSpecError) as caught:
        parse_goal_spec(found)
    return caught.value.problems


def test_a_goal_is_read_as_it_was_asked_for() -> None:
    assert parse_goal_spec(WHOLE) == WHOLE


@pytest.mark.parametrize("command", [..., None, "", "  "])
def test_all_but_the_objective_has_a_default(command: Any) -> None:
    found = {"objective": "win"} | ({} if command is ... else {"validation_cmd": command})

    assert parse_goal_spec(found) == {
        "objective": "win",
        "end_state": "",
        "validation_cmd": None,
        "max_iterations": 20,
        "constraints": [],
    }


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"objective": " "}, 'objective is " ", expected a text of 1 to 65536 characters'),
        ({"objective": None}, "objective is null, expected a text"),
        ({"objective": "o" * (OBJECTIVE_CHARS_MAX + 1)}, f'objective is "{"o" * 56}..., expected'),
        ({"objective": "a\x00"}, 'objective is "a\\u0000", expected'),
        ({"end_state": 3}, "end_state is 3, expected a text of at most 65536 characters"),
        ({"validation_cmd": ["make"]}, "validation_cmd is an array, expected a command of at most"),
        ({"max_iterations": 0}, "max_iterations is 0, expected a whole number from 1 to 1000"),
        ({"max_iterations": ITERATIONS_MAX + 1}, "max_iterations is 1001, expected"),
        ({"max_iterations": True}, "max_iterations is true, expected"),
        ({"constraints": "none"}, 'constraints is "none", expected at most 100 texts'),
        ({"constraints": [""]}, "constraints is an array, expected at most 100 texts"),
        ({"constraints": ["c"] * (CONSTRAINTS_MAX + 1)}, "constraints is an array, expected"),
        ({"max_iteration": 3}, '"max_iteration" is no field of a goal, expected one of objective'),
    ],
)
def test_what_is_unusable_is_named(change: dict[str, Any], problem: str) -> None:
    [found] = problems_of({**WHOLE, **change})

    assert found.startswith(problem)


def test_what_is_no_object_is_told_and_a_missing_objective() -> None:
    assert problems_of([1]) == ("the goal is an array, expected an object",)
    assert problems_of({}) == (
        "objective is missing, expected a text of 1 to 65536 characters, not blank",
    )


def test_every_problem_is_told_at_once() -> None:
    assert len(problems_of({"objective": 1, "end_state": 1, "max_iterations": "x", "y": 1})) == 4


def test_all_texts_together_are_bounded() -> None:
    wide = "\U0001f600"
    whole = {"objective": wide * OBJECTIVE_CHARS_MAX, "end_state": "e" * 37_856}

    assert parse_goal_spec(whole)["end_state"] == whole["end_state"]
    assert problems_of({**whole, "validation_cmd": "x"}) == (
        "the goal has 300001 bytes, expected at most 300000",
    )


def test_values_at_their_bounds_are_taken() -> None:
    spec = parse_goal_spec(
        {
            **WHOLE,
            "objective": "o" * OBJECTIVE_CHARS_MAX,
            "max_iterations": ITERATIONS_MAX,
            "constraints": ["c"] * CONSTRAINTS_MAX,
        }
    )

    assert spec["max_iterations"] == ITERATIONS_MAX


@given(
    st.dictionaries(
        st.sampled_from(sorted(WHOLE)),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text() | st.none()),
    )
)
def test_any_values_are_a_goal_that_reads_back_or_a_problem(found: dict[str, Any]) -> None:
    try:
        spec = parse_goal_spec(found)
    except GoalSpecError as error:
        spec = None
        problems = error.problems
    else:
        problems = ()
    assert (spec is None) == bool(problems)
    if spec is not None:
        assert parse_goal_spec(spec) == spec
