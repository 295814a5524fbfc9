"""What an expression may cost over an event that somebody else wrote."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import expression_cost
from streams.core.expression import Failed
from streams.expression_cost import STEPS_MAX, is_costly, refusal
from streams.expressions import ExpressionSet
from streams.testing import event


@pytest.mark.parametrize(
    ("source", "costly"),
    [
        ("event.payload.labels == event.payload.others", False),
        ("event.payload.labels.all(x, size(x) > 0)", False),
        (
            "event.payload.labels.exists(x, x.name in ['bug', '(', \"event\"]) && event.kind != ''",
            False,
        ),
        ("event.payload.labels.exists(x, x.event == (x.name))", False),
        ("event.payload.labels.exists(x, x in event.payload.labels)", True),
        ("event.payload.labels.exists(x, (x.a == ')') && event.kind == x.b)", True),
        ("event.payload.labels . exists (x, x == event.kind)", True),
        ("event.payload.labels.exists(x, // )\n x == event.kind)", True),
        ("event.payload.labels.exists(x, x == 'http://a' || x == event.kind)", True),
        ("event.payload.labels.map(x, x.name)[0] == 'bug'", True),
        ("size(event.payload.labels.filter(x, x == 'bug')) > 1", True),
    ],
)
def test_what_costs_more_than_the_event_is_large(source: str, costly: bool) -> None:
    assert ExpressionSet().cel_problem(source) is None
    assert is_costly(source) is costly


def test_a_list_at_the_bound_is_looked_at_and_a_longer_one_is_not() -> None:
    expressions = ExpressionSet()
    source = "size(event.payload.list.filter(x, x == 'a')) == 1"
    # The event, its payload and the list are values as well.
    fits = next(size for size in range(3_000, 0, -1) if size * (size + 3) <= STEPS_MAX)
    items = ["a", *("b" for _ in range(fits - 1))]
    assert expressions.cel(source, event(payload={"list": items})) is True
    found = expressions.cel(source, event(payload={"list": [*items, "b"]}))
    assert isinstance(found, Failed)
    assert found.reason.startswith("more than 4000000 steps: what it is given is too large")


def test_what_is_not_named_and_what_is_linear_is_not_counted() -> None:
    expressions = ExpressionSet()
    long = event(payload={"list": ["b"] * 20_000, "text": "x" * 100_000, "few": ["a"]})
    assert expressions.cel("event.payload.list.all(x, x == 'b')", long) is True
    assert expressions.cel("event.payload.few.exists(x, x == event.payload.few[0])", long) is True
    assert isinstance(expressions.cel("event.payload.few.map(x, x + event.kind)", long), list)
    refused = expressions.cel("event.payload.list.exists(x, x == event.payload.text)", long)
    assert isinstance(refused, Failed)


_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=20,
)


def _values(value: Any) -> int:
    if isinstance(value, str):
        return 1 + len(value) // 4
    if isinstance(value, dict):
        return 1 + sum(map(_values, value.values()))
    return 1 + sum(map(_values, value)) if isinstance(value, list) else 1


def _longest(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 1
    inner = [*value.values()] if isinstance(value, dict) else value
    return max(1, len(inner), *map(_longest, inner))


@given(value=_VALUES, bound=st.integers(1, 60))
def test_steps_are_the_longest_list_times_all_values(value: Any, bound: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expression_cost, "STEPS_MAX", bound)
        assert (refusal(value) is None) is (_longest(value) * _values(value) <= bound)
