"""Gates and expressions of a manifest: what is taken, and what is refused with which words."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from streams.core.flow import Concurrency, Debounce, Window, flow_of
from streams.core.manifest import Manifest, parse_manifest
from streams.expressions import EXPRESSIONS

TRIGGER = """
[[triggers]]
id = "t"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "f"
"""


def parse(*lines: str) -> Manifest | tuple[str, ...]:
    return parse_manifest(tomllib.loads(TRIGGER + "\n".join(lines)), "harn.toml", EXPRESSIONS)


def definition(*lines: str) -> dict[str, Any]:
    manifest = parse(*lines)
    assert isinstance(manifest, Manifest), manifest
    return json.loads(manifest.bindings[0]["definition"])


def problem(*lines: str) -> str:
    found = parse(*lines)
    assert isinstance(found, tuple), "expected a problem"
    assert len(found) == 1, found
    return found[0]


def test_durations_become_milliseconds_and_gates_come_back_as_declared() -> None:
    manifest = parse(
        'debounce = { key = "event.kind", period = "30s", max_wait = "2m" }',
        'rate_limit = { period = "1h", max = 5 }',
        'concurrency = { key = "event.kind", max = 2, release_on_retry = true }',
        'priority = { key = "event.payload.plan", order = ["gold"] }',
        "max_waiting = 7",
    )
    assert isinstance(manifest, Manifest), manifest
    flow = flow_of(manifest.bindings[0])
    assert flow.debounce == Debounce(period_ms=30_000, max_wait_ms=120_000)
    assert flow.rate_limit == Window(period_ms=3_600_000, max=5)
    assert flow.concurrency == Concurrency(max=2, release_on_retry=True)
    assert flow.priority == ("gold",)
    assert flow.waiting_max == 7
    assert flow.declared == ("debounce", "rate_limit", "concurrency")


def test_a_circuit_parks_for_a_day_unless_told_otherwise() -> None:
    flows = [
        flow_of(found.bindings[0])
        for found in (
            parse(),
            parse('circuit = "park"', 'circuit_max_park = "2h"'),
            parse('circuit = "dlq"'),
        )
        if isinstance(found, Manifest)
    ]
    assert [(flow.circuit, flow.circuit_max_park_ms) for flow in flows] == [
        ("park", 86_400_000),
        ("park", 7_200_000),
        ("dlq", 86_400_000),
    ]
    assert "bounds parking" in problem('circuit = "dlq"', 'circuit_max_park = "2h"')
    assert "bounds parking" in problem('circuit = "off"', 'circuit_max_park = "2h"')
    assert "circuit is 'drop', expected one of park, dlq" in problem('circuit = "drop"')


def test_a_trigger_without_gates_keeps_the_definition_that_it_had() -> None:
    assert set(definition()) == {"handler", "id", "kind", "match", "module", "provider"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('rate_limit = { period = "500ms", max = 1 }', "rate_limit.period is '500ms'"),
        ('rate_limit = { period = "0s", max = 1 }', "rate_limit.period is '0s'"),
        ("rate_limit = { period = 5, max = 1 }", "rate_limit.period is 5"),
        ('rate_limit = { period = "1m", max = 0 }', "rate_limit.max is 0"),
        ('rate_limit = { period = "1m" }', "rate_limit.max is missing"),
        ('throttle = { period = "s", max = 1 }', "throttle.period is 's'"),
        ('debounce = { period = "1m" }', "debounce.key is missing"),
        ('batch = { size = 0, timeout = "1m" }', "batch.size is 0"),
        ("concurrency = { max = 0 }", "concurrency.max is 0"),
        ('concurrency = { max = 1, key = "event." }', "no CEL expression"),
        ('singleton = { key = "1 +" }', "no CEL expression"),
        ('filter = "event.["', "no JMESPath expression"),
        ('when = "cel:event.("', "no CEL expression"),
        ('when = "not a name"', "is not the name of a function: expected a function, as"),
        ("when = true", "when is true, expected a function, as 'fn' or 'module::fn', or 'cel:'"),
        ('when = "gates::is_big"', "when is 'gates::is_big', but [exports] has no 'gates'"),
        ('when = "a2a://x"', "when is 'a2a://x', expected a function"),
        ('priority = { key = "event.kind", order = ["a"] }', "concurrency, which is not declared"),
        (
            'concurrency = { max = 1 }\npriority = { key = "event.kind" }',
            "priority.order is missing",
        ),
        (
            'concurrency = { max = 1 }\npriority = { key = "event.kind", order = [] }',
            "priority.order is empty, expected at least one value",
        ),
        ('priority = "high"', "priority as a text is a queue's"),
        ('singleton = "yes"', "singleton is 'yes', expected a table"),
        ('singleton = { kee = "x" }', "did you mean 'key'"),
        (
            'when = "cel:event.payload.a.all(x, event.payload.b.exists(y, y == x))"',
            "more than one of all",
        ),
        (
            'when = """cel:event.payload.a.map(x, event.payload.b. // c\n existsOne(y, y))"""',
            "more than one of all",
        ),
        (f'filter = "{"a" * 1_025}"', "expected at most 1024"),
        ('singleton = { key = "tenant_id" }', "'tenant_id' is not known"),
        ('when = "cel:payload.n > 1"', "an expression sees `event` alone, as in event.payload"),
        ('singleton = { key = "event.tenant" }', "did you mean event.tenant_id?"),
        ("filter = \"payload.action == 'opened'\"", "'payload' is not known"),
        ('when = "cel:nosuch(event.id)"', "when is 'nosuch(event.id)', which is no CEL"),
        ('when = "cel:event.kind.startWith(1)"', "'startWith'; did you mean 'startsWith'?"),
        (
            'throttle = { key = "lower(event.id)", period = "1s", max = 1 }',
            "throttle.key is 'lower(",
        ),
        ('singleton = { key = "size()" }', "'size' is called in another way, expected size(x) or"),
        ("filter = \"lower(event.kind) == 'a'\"", "there is no function 'lower'"),
        ('dedupe_key = "join(event.id)"', "'join' is given 1 arguments, expected 2"),
        ('dedupe_key = "event.body.id"', "an event has no 'body'; known are batch, dedupe_key"),
        (
            'batch = { size = 8, timeout = "1m" }\nmax_waiting = 7',
            "batch.size is 8, expected at most max_waiting, which is 7",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(line: str, words: str) -> None:
    found = problem(line)
    assert found.startswith("harn.toml: [[triggers]] 1 (t): ")
    assert words in found


@pytest.mark.parametrize(
    "other",
    [
        'debounce = { key = "event.kind", period = "1s" }',
        "singleton = {}",
        "concurrency = { max = 1 }",
        'throttle = { period = "1s", max = 1 }',
        'rate_limit = { period = "1s", max = 1 }',
    ],
)
def test_batch_stands_alone(other: str) -> None:
    assert "stands alone" in problem('batch = { size = 2, timeout = "1s" }', other)


def test_priority_needs_an_order() -> None:
    found = problem("concurrency = { max = 1 }", 'priority = { key = "event.kind", order = [] }')
    assert "priority.order is empty" in found


@pytest.mark.parametrize(("text", "ms"), [("30s", 30_000), ("1m", 60_000), ("2W", 1_209_600_000)])
def test_duration_vectors(text: str, ms: int) -> None:
    found = definition(f'throttle = {{ period = "{text}", max = 1 }}')
    assert found["throttle"]["period_ms"] == ms
