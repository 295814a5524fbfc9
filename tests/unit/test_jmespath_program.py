"""How deep a JMESPath expression may be, and how much it may make of what it is given."""

from __future__ import annotations

from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jmespath.exceptions import JMESPathError

from streams import jmespath_program
from streams.cli.log_query import parse_query
from streams.cli.log_record import ShownRecord
from streams.core.expression import Failed
from streams.core.record import Position
from streams.errors import ConfigError
from streams.expressions import EXPRESSIONS
from streams.jmespath_program import DEPTH_MAX, TooManySteps, compile_jmespath
from streams.testing import event


@pytest.mark.parametrize(
    "source",
    [
        "event.payload.l[?a == 'x' && contains(b, 'c')].{x: y, z: [a, b]} | [0]",
        "sort_by(event.payload.l, &a)[0:2:1]",
        "event.kind == 'a'" + " || event.kind == 'b'" * 40,
    ],
)
def test_what_people_write_is_far_from_the_bound(source: str) -> None:
    assert EXPRESSIONS.jmespath_problem(source) is None


def test_an_expression_at_the_bound_is_taken_and_evaluated_and_a_deeper_one_is_not() -> None:
    # The property is two levels: of the event, by its name.
    levels = DEPTH_MAX - 2
    assert EXPRESSIONS.jmespath_problem("!" * levels + "(event.kind)") is None
    assert EXPRESSIONS.jmespath("!" * levels + "(event.kind)", event()) is True
    problem = EXPRESSIONS.jmespath_problem("!" * (levels + 1) + "(event.kind)")
    assert problem == "is nested more than 100 deep"


@pytest.mark.parametrize("source", ["!" * 900 + "a", "(" * 500 + "a" + ")" * 500])
def test_what_the_library_cannot_walk_is_a_problem_like_any_other(source: str) -> None:
    assert EXPRESSIONS.jmespath_problem(source) == "is nested more than 100 deep"
    with pytest.raises(ValueError, match="is nested more than 100 deep"):
        compile_jmespath(source)
    with pytest.raises(ConfigError, match="--where is no JMESPath expression: is nested more"):
        parse_query(kind=None, key=None, event_id=None, where=source)


@pytest.mark.parametrize(
    "source",
    [
        "event.payload.l" + " | [@, @][]" * 60,
        "event.kind" + " | [@, @]" * 80,
        "event.payload.l" + " | map(&[@, @], @) | []" * 40,
        "event.payload" + " | merge({a: @}, {b: @})" * 35,
        "join(event.payload.long, event.payload.l)",
        "event.payload.l[*].[" + ", ".join(["@"] * 200) + "]",
    ],
)
def test_what_makes_ever_more_of_an_event_comes_to_an_end(source: str) -> None:
    assert EXPRESSIONS.jmespath_problem(source) is None
    found = EXPRESSIONS.jmespath(source, event(payload={"l": ["x"] * 9_000, "long": "-" * 900}))
    assert isinstance(found, Failed)
    assert "more than 1000000 steps: it makes too much of what it is given" in found.reason


def test_what_is_counted_is_what_an_expression_looks_at_and_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of the list, of its items each, of the two that each new list holds, and of a text's letters.
    source, steps = "l[*].[@, @]", 2 + 3 * (3 + 2 + 2 * 2)
    document = {"l": ["8letters"] * 3}
    for bound, fits in ((steps, True), (steps - 1, False)):
        monkeypatch.setattr(jmespath_program, "STEPS_MAX", bound)
        try:
            assert compile_jmespath(source).search(document) == [["8letters"] * 2] * 3
        except TooManySteps:
            assert not fits
        else:
            assert fits


_NAMES = st.sampled_from(["a", "b", "c"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=15,
)
_SOURCES = (
    *("a.b || c", "a[*].b", "a[]", "a[?b].c", "*.a", "a[?b == `1`] | [0]", "[a, b.c]", "a[1:]"),
    *("{x: a, y: b}", "!a && b", "join(',', a)", "join(a, b)", "map(&b, a)", "sort_by(a, &b)"),
    *("to_string(@)", "merge(a, b)", "length(a)", "not_null(a, b, c)", "a.[b, c][]", "keys(@)"),
)


@given(document=st.dictionaries(_NAMES, _VALUES), source=st.sampled_from(_SOURCES))
def test_within_the_bound_all_is_as_the_library_has_it(document: Any, source: str) -> None:
    def answer(search: Any) -> Any:
        try:
            return search(document)
        except TooManySteps:
            raise
        except (JMESPathError, TypeError, ValueError) as error:  # by `merge` of what is no object
            return str(error)

    assert answer(compile_jmespath(source).search) == answer(jmespath.compile(source).search)


RECORD = ShownRecord(Position("trigger.outbox", 2, 7), 0, "tick", "tick", "", {}, {"a": "b"}, None)


@pytest.mark.parametrize("source", ["merge(value, value.nothing)", "join(value, value)"])
def test_what_a_function_is_not_for_does_not_hold(source: str) -> None:
    assert not parse_query(kind=None, key=None, event_id=None, where=source).takes(RECORD)


def test_a_person_is_told_over_which_record_a_condition_was_given_up() -> None:
    query = parse_query(kind=None, key=None, event_id=None, where="value" + " | [@, @]" * 80)
    expected = f"--where cannot be evaluated over {RECORD.position}: more than"
    with pytest.raises(ConfigError, match=expected):
        query.takes(RECORD)
