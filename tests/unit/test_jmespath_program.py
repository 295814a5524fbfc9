"""How deep a JMESPath expression may be."""

from __future__ import annotations

import pytest

from streams.cli.log_query import parse_query
from streams.errors import ConfigError
from streams.expressions import EXPRESSIONS
from streams.jmespath_program import DEPTH_MAX, compile_jmespath
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
