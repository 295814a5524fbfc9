"""Expressions over events: values, missing properties, failures, bounds."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.expression import Failed, as_key, is_truth
from streams.expressions import EXPRESSIONS, ExpressionSet, _paths_in
from streams.testing import event

FOUND = event(
    "e1",
    kind="issues.opened",
    payload={"n": 3, "f": 2.5, "list": [1, 2], "flag": True, "name": "x"},
    tenant_id="acme",
    headers={"x-plan": "gold"},
)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("event.tenant_id", "acme"),
        ("event.payload.n", 3),
        ("event.payload.missing.deeper", None),
        ("event.provider + ':' + event.kind", "github:issues.opened"),
        ("event.headers['x-plan']", "gold"),
        ("event.payload.n > 2 && event.payload.flag", True),
        ("event.payload.list.exists(x, x == 2)", True),
        ("has(event.payload.nothing)", False),
        ("event.payload.list[7]", None),
        ("event.payload.list[7].deeper", None),
    ],
)
def test_cel_values(source: str, value: object) -> None:
    expressions = ExpressionSet()
    assert expressions.cel_problem(source) is None
    assert expressions.cel(source, FOUND) == value


def test_a_plain_chain_and_the_library_agree() -> None:
    expressions = ExpressionSet()
    for chain in ("event.kind", "event.payload.n", "event.payload.nothing", "event.payload.list"):
        assert expressions.cel(chain, FOUND) == expressions.cel(f"({chain})", FOUND)


@pytest.mark.parametrize("chain", ["event.payload.n", "event.provider_payload.n"])
def test_space_around_a_payload_is_not_part_of_it_and_other_text_is(chain: str) -> None:
    for text, value in (('{"n": 3}', 3), (' {"n": 4}', 4), ('{"n": 5}\r\n', 5), ("[1]", None)):
        assert EXPRESSIONS.cel(chain, {**FOUND, "provider_payload": text}) == value
    for text in ('{"n": 3} 4', '{"n": 3', "", " ", '\ufeff{"n": 3}'):
        found = EXPRESSIONS.cel(chain, {**FOUND, "provider_payload": text})
        assert isinstance(found, Failed), text


def test_what_cannot_be_evaluated_is_a_value() -> None:
    assert isinstance(ExpressionSet().cel("event.payload.n + 'x'", FOUND), Failed)
    no_json = {**FOUND, "provider_payload": "no json"}
    assert isinstance(ExpressionSet().cel("event.payload.n", no_json), Failed)  # type: ignore[arg-type]


def test_one_event_is_not_taken_for_another_with_its_id() -> None:
    expressions = ExpressionSet()
    assert expressions.cel("event.payload.n", FOUND) == 3
    other = event("e1", payload={"n": 4})
    assert expressions.cel("event.payload.n", other) == 4


@pytest.mark.parametrize(
    ("source", "passes"),
    [
        ("event.payload.name == 'x'", True),
        ("event.payload.list[?@ == `9`]", False),
        ("event.payload.nothing", False),
        ("event.payload.n", True),
    ],
)
def test_jmespath_filters(source: str, passes: bool) -> None:
    assert is_truth(ExpressionSet().jmespath(source, FOUND)) is passes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("a b", "a b"),
        (True, "true"),
        (3, "3"),
        (3.0, "3"),
        (2.5, "2.5"),
        ([1, "a"], '[1,"a"]'),
        ({"b": 1, "a": None}, '{"a":null,"b":1}'),
    ],
)
def test_a_value_as_part_of_a_key(value: Any, text: str) -> None:
    assert as_key(value) == text


def test_a_long_value_is_known_by_its_hash_and_half_a_pair_by_its_escape() -> None:
    assert as_key("x" * 200) == "x" * 200
    assert as_key("x" * 201).startswith("blake2b-")
    assert as_key("x" * 201) != as_key("x" * 202)
    assert as_key("a\ud800") == "a\\ud800"
    assert as_key(["\ud800"]).encode()


@pytest.mark.parametrize("value", [b"bytes", [b"bytes"], {1: "a", "b": 2}, object()])
def test_what_json_does_not_have_is_no_key(value: Any) -> None:
    with pytest.raises(TypeError):
        as_key(value)


def test_a_number_that_is_none_is_still_a_key() -> None:
    assert as_key(math.inf) == "inf"


# ---------------------------------------------------------------------- what the library is given
_NAMES = st.sampled_from(["payload", "kind", "a", "b", "size", "event"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "opened"]),
    lambda inner: (
        st.just(2**63)
        | st.just(1.0)
        | st.lists(inner, max_size=3)
        | st.dictionaries(_NAMES, inner, max_size=4)
    ),
    max_leaves=12,
)
_SOURCES = (
    "event.payload.a == 'a'",
    "event.payload.a == 'a' && event.payload.b != \"opened\"",
    "event.payload.a.b >= 1 && event.kind == 'opened' && event.payload.b < 9",
    "event.payload.a != -1",
    "event.payload.a == 'a' && event.payload.b",
    "event.payload.b > 9007199254740991 && event.payload.a == 0",
    "event.payload.a.b == event.payload.a.a",
    "event.payload.a.a.a > 1 || event.kind == 'opened'",
    "has(event.payload.a.b) && event.payload.a == event.payload.a",
    "event.payload.a.size() > 1",
    "event.payload.size() == size(event.payload)",
    "event.payload.b.exists(event, event.a == 1)",
    "event.payload['a'] == event.payload.b[0]",
    "'a' in event.payload || 'payload' in event",
    "event . payload . a != (event).kind",
    "event.payload.a.startsWith('o') ? event.payload : event.kind",
    "[event.payload.a.b, event.payload.a, event.payload.a.a]",
    "[event.payload.a, event.payload.a.b, event.payload.event.event]",
    "'event.payload' == event.kind",
)


@given(payload=_VALUES, source=st.sampled_from(_SOURCES))
def test_what_an_expression_does_not_name_makes_no_difference(payload: Any, source: str) -> None:
    sent = event(kind="opened", payload=payload)
    given_all = EXPRESSIONS.cel(f"event == event ? ({source}) : null", sent)
    found = EXPRESSIONS.cel(source, sent)
    assert found == given_all or (isinstance(found, Failed) and isinstance(given_all, Failed))


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("event.payload.text != ''", [["payload", "text"]]),
        ("event.payload.text.size() > 0", [["payload", "text"]]),
        ("size(event) > 0", [[]]),
        ("event['payload'] == event.kind", [[], ["kind"]]),
        ("my_event.kind == this.event.kind", []),
    ],
)
def test_the_paths_of_an_expression(source: str, paths: list[list[str]]) -> None:
    assert _paths_in(source) == paths
