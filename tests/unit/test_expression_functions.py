"""Calls in expressions: what is no function, or is called in another way, is told at load."""

from __future__ import annotations

import re

import cel
import pytest

from streams.expression_functions import (
    CEL_FORMS,
    cel_functions_problem,
    jmespath_functions_problem,
)
from streams.expressions import EXPRESSIONS

TIME, SPAN = "timestamp('2026-01-01T00:00:00Z')", "duration('90m')"
EXAMPLES = {
    "string": "string(1)",
    "int": "int('1')",
    "uint": "uint(1)",
    "double": "double(1)",
    "bytes": "bytes('a')",
    "type": "type(1)",
    "dyn": "dyn(1)",
    "timestamp": TIME,
    "duration": SPAN,
    "size": "size('a') + 'a'.size()",
    "contains": "'a'.contains('a')",
    "startsWith": "'a'.startsWith('a')",
    "endsWith": "'a'.endsWith('a')",
    "matches": "'a'.matches('a')",
    **{
        f"get{part}": f"{TIME}.get{part}()"
        for part in ("FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear")
    },
    **{
        f"get{part}": f"{TIME}.get{part}() + {SPAN}.get{part}()"
        for part in ("Hours", "Minutes", "Seconds", "Milliseconds")
    },
    "of": "optional.of(1)",
    "ofNonZeroValue": "optional.ofNonZeroValue(1)",
    "none": "optional.none()",
    "hasValue": "optional.of(1).hasValue()",
    "value": "optional.of(1).value()",
    "or": "optional.of(1).or(optional.none())",
    "orValue": "optional.of(1).orValue(2)",
    "has": "has({'a': 1}.a)",
    "all": "[1].all(x, x > 0)",
    "exists": "[1].exists(x, x > 0)",
    "exists_one": "[1].exists_one(x, x > 0)",
    "existsOne": "[1].existsOne(x, x > 0)",
    "filter": "[1].filter(x, x > 0)",
    "map": "[1].map(x, x + 1) + [1].map(x, x > 0, x + 1)",
}


def test_each_function_that_is_known_can_be_called_in_each_of_its_forms() -> None:
    assert EXAMPLES.keys() == CEL_FORMS.keys()
    for name, example in EXAMPLES.items():
        assert len(re.findall(rf"\b{name}\(", example)) >= len(CEL_FORMS[name])
        assert cel.compile(example).execute({}) is not None
        assert cel_functions_problem(example) is None, example


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nosuch(event.id)", "there is no function 'nosuch'; known are all, bytes, contains"),
        ("event.id.nosuch()", "there is no function 'nosuch'"),
        ("event.kind == 'a' && now() > 1", "there is no function 'now'"),
        (
            "event.kind.startWith('a')",
            "there is no function 'startWith'; did you mean 'startsWith'?",
        ),
        ("lists.range(3).size() > 1", "there is no function 'range'"),
        ("event.payload.l.map(x, twice(x))", "there is no function 'twice'"),
        ("size()", "'size' is called in another way, expected size(x) or x.size()"),
        ("size(event.kind, ',(')", "'size' is called in another way"),
        ("startsWith(event.kind, 'a')", "expected x.startsWith(y)"),
        ("event.kind . startsWith ( )", "expected x.startsWith(y)"),
        ("event.payload.l.exists(x)", "expected x.exists(item, condition)"),
        ("event.payload.l.map(x)", "expected x.map(item, value) or x.map(item, condition, value)"),
        ("event.of(1).hasValue()", "expected optional.of(x)"),
        (f"{TIME}.getHours('Europe/Paris')", "expected x.getHours()"),
    ],
)
def test_a_call_that_fails_for_every_event(source: str, words: str) -> None:
    assert words in (cel_functions_problem(source) or "")
    assert words in (EXPRESSIONS.cel_problem(source) or "")
    with pytest.raises((RuntimeError, ValueError)):
        cel.compile(source).execute({"event": {"id": "a", "kind": "a", "payload": {"l": [1]}}})


@pytest.mark.parametrize(
    "source",
    [
        "event.kind in (['a', 'b'])",
        "!(event.kind == 'a') || -(1) < 2",
        "'size(' == event.kind && \"nosuch()\" != event.kind",
        "size(event.kind) > 1 // nosuch(1)",
        "size( // what, else\n event.kind) > 1",
        "event . kind . startsWith ( 'a,b' )",
        "size([event.kind, {'a': [1, 2]}]) > (1)",
        "event.payload.l.map(x, x > 1, [x, (2)]).size() > 0",
        "event.kind == r'\\' && size(event.kind) > 1",
        "event.payload.size == 1 && event.payload.map.filter == 2",
    ],
)
def test_a_call_that_can_be_made_is_no_problem(source: str) -> None:
    assert cel_functions_problem(source) is None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nosuch(event.id)", "there is no function 'nosuch'; known are abs, avg"),
        ("starts_wth(event.kind, 'a')", "did you mean 'starts_with'?"),
        ("event.payload.l[?nosuch(@)].x", "there is no function 'nosuch'"),
        ("sort_by(event.payload.l, &nosuch(n))", "there is no function 'nosuch'"),
        ("length()", "'length' is given 0 arguments, expected 1"),
        ("length(event.kind, `1`)", "'length' is given 2 arguments, expected 1"),
        ("merge()", "'merge' is given 0 arguments, expected 1 or more"),
    ],
)
def test_a_call_in_jmespath_that_fails_for_every_event(source: str, words: str) -> None:
    assert words in (jmespath_functions_problem(source) or "")
    assert words in (EXPRESSIONS.jmespath_problem(source) or "")


@pytest.mark.parametrize(
    "source",
    [
        "join(':', [event.provider, event.kind])",
        "not_null(event.tenant_id, event.kind, 'none')",
        "event.payload.l[0:2] | length(@)",
        "sort_by(event.payload.l, &to_number(n))[-1]",
    ],
)
def test_a_call_in_jmespath_that_can_be_made_is_no_problem(source: str) -> None:
    assert jmespath_functions_problem(source) is None
