"""Names in expressions: what no event has is told at load, and nothing else is."""

from __future__ import annotations

import pytest

from streams.core.wire import TriggerEvent
from streams.expression_names import cel_names_problem, jmespath_names_problem
from streams.expressions import EXPRESSIONS
from streams.testing import event


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("tenant_id", "not known: an expression sees `event` alone, as in event.tenant_id"),
        ("payload.id", "as in event.payload"),
        ("event.payload.items.exists(x, x == y)", "'y' is not known"),
        ("my_event.kind == 'a'", "'my_event' is not known"),
        ("event.tenant", "an event has no 'tenant'; did you mean event.tenant_id?"),
        ("event . kinds == 'a'", "did you mean event.kind?"),
        ("event.raw_body", "an event has no 'raw_body'; known are batch, dedupe_key, headers"),
        ("has(event.body)", "an event has no 'body'"),
        ("'//' != event.body", "an event has no 'body'"),
    ],
)
def test_a_name_of_a_cel_expression_that_no_event_has(source: str, words: str) -> None:
    assert words in (cel_names_problem(source) or "")


@pytest.mark.parametrize(
    "source",
    [
        "event.provider + ':' + event.kind",
        "event.headers['x-plan']",
        "event.payload.event.tenant == 'a'",
        "event.payload.items.map(item, item.event.tenant)",
        "event.payload.items.exists_one(event, event.tenant == 1)",
        "'event.tenant' == event.kind || \"event.tenant\" == event.kind",
        "r'event.tenant\\' == event.kind",
        "event.kind == 'a' // event.tenant",
        "type(event.payload.n) == int && event['tenant'] == null",
        "event.kind.startsWith('a') && event.payload.size() > 0",
        "optional.of(event.kind).hasValue()",
        "{'tenant': event.kind}['tenant']",
    ],
)
def test_a_cel_expression_whose_names_are_known(source: str) -> None:
    assert cel_names_problem(source) is None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("payload.action == 'opened'", "'payload' is not known"),
        ("[event.kind, kind]", "'kind' is not known: an expression sees `event` alone, as in"),
        ("{a: event.kind, b: event.payloads.x}", "did you mean event.payload?"),
        ("!tenant && event.kind", "'tenant' is not known"),
        ("length(items[*].id)", "'items' is not known"),
        ("payload.items[?ok] | [0]", "'payload' is not known"),
        ("event.body.items[?ok].id", "an event has no 'body'"),
        ('event."x-plan"', "an event has no 'x-plan'"),
    ],
)
def test_a_name_of_a_jmespath_expression_that_no_event_has(source: str, words: str) -> None:
    assert words in (jmespath_names_problem(source) or "")


@pytest.mark.parametrize(
    "source",
    [
        "event.payload.pull_request.draft == `false`",
        'event.headers."x-plan"',
        "sort_by(event.payload.items, &n)[?n > `1`].id | [0]",
        "event.payload.items[?event.tenant].*.x[]",
        "event.[kind, tenant]",
        "event | tenant",
        "@.event.payload",
        "join(':', [event.provider, event.kind])",
        "event.*",
        "`true`",
    ],
)
def test_a_jmespath_expression_whose_names_are_known(source: str) -> None:
    assert jmespath_names_problem(source) is None


@pytest.mark.parametrize("name", sorted({*TriggerEvent.__annotations__, "payload"} - {"raw_body"}))
def test_each_property_of_an_event_can_be_named(name: str) -> None:
    source = f"event.{name}"
    assert EXPRESSIONS.cel_problem(source) is None
    assert EXPRESSIONS.jmespath_problem(source) is None
    document = EXPRESSIONS.jmespath("keys(event)", event("e1"))
    assert name in document
