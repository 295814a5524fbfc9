"""Predicates that are functions, and budgets: what a manifest says, and what it cannot."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from streams.core.flow import flow_of
from streams.core.manifest import Manifest, parse_manifest
from streams.core.spend import Limits
from streams.expressions import EXPRESSIONS

TRIGGER = """
[[triggers]]
id = "t"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "f"
"""


def parse(*lines: str, before: str = "") -> Manifest | tuple[str, ...]:
    document = tomllib.loads(before + TRIGGER + "\n".join(lines))
    return parse_manifest(document, "harn.toml", EXPRESSIONS)


def manifest(*lines: str, before: str = "") -> Manifest:
    found = parse(*lines, before=before)
    assert isinstance(found, Manifest), found
    return found


def definition(*lines: str, before: str = "") -> dict[str, Any]:
    return json.loads(manifest(*lines, before=before).bindings[0]["definition"])


def test_a_function_is_a_predicate_that_invokers_evaluate() -> None:
    flow = flow_of(manifest('when = "is_big"').bindings[0])
    assert (flow.function, flow.when, flow.spend) == ("is_big", None, None)
    flow = flow_of(manifest('when = "cel:event.payload.n > 1"').bindings[0])
    assert (flow.function, flow.when) == (None, "cel:event.payload.n > 1")


def test_another_file_behind_a_predicate_is_another_definition() -> None:
    exports = '[exports]\ngates = "{}.py"\n'
    one, other = (
        manifest('when = "gates::is_big"', before=exports.format(name)).bindings[0]["fingerprint"]
        for name in ("a", "b")
    )
    assert one != other


def test_money_is_kept_in_millionths_and_windows_by_name() -> None:
    flow = flow_of(
        manifest(
            'when = "is_big"',
            'when_budget = { max_cost_usd = 0.0100009, tokens_max = 2000, timeout = "1500ms" }',
            'budget = { hourly_cost_usd = 0.5, daily_cost_usd = 5, on_budget_exhausted = "fail" }',
            before="[orchestrator]\nbudget = { daily_cost_usd = 20 }\n",
        ).bindings[0]
    )
    assert flow.function_timeout_ms == 1_500
    spend = flow.spend
    assert spend is not None
    assert spend.trigger == Limits(500_000, 5_000_000)
    assert spend.namespace == Limits(None, 20_000_000)
    assert (spend.max_cost_micros, spend.tokens_max, spend.strategy) == (10_000, 2_000, "fail")


@pytest.mark.parametrize(
    ("usd", "micros"), [("0.29", 290_000), ("1e-7", 0), ("0.000001", 1), ("3", 3_000_000)]
)
def test_dollars_as_written_are_millionths_rounded_down(usd: str, micros: int) -> None:
    flow = flow_of(manifest(f"budget = {{ daily_cost_usd = {usd} }}").bindings[0])
    assert flow.spend is not None
    assert flow.spend.trigger.daily_micros == micros


def test_a_budget_fills_what_the_predicates_leaves_out() -> None:
    flow = flow_of(
        manifest(
            'when = "is_big"',
            "when_budget = { max_cost_usd = 1 }",
            "budget = { max_cost_usd = 2, tokens_max = 7 }",
        ).bindings[0]
    )
    assert flow.spend is not None
    assert (flow.spend.max_cost_micros, flow.spend.tokens_max) == (1_000_000, 7)
    assert flow.spend.strategy == "false"


def test_the_namespaces_budget_concerns_those_that_spend() -> None:
    before = "[orchestrator]\nbudget = { hourly_cost_usd = 1 }\n"
    assert "orchestrator_budget" not in definition(before=before)
    assert "orchestrator_budget" not in definition('when = "cel:true"', before=before)
    for line in ('when = "is_big"', "budget = { daily_cost_usd = 1 }"):
        assert definition(line, before=before)["orchestrator_budget"] == {
            "hourly_cost_micros": 1_000_000
        }


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["when_budget = { tokens_max = 1 }"], "when_budget requires a predicate"),
        (
            ['when = "cel:true"', "when_budget = { tokens_max = 1 }"],
            "when_budget requires a predicate",
        ),
        (["budget = { max_cost_usd = 1 }"], "budget.max_cost_usd limits one evaluation"),
        (["budget = { max_tokens = 1 }"], "budget.max_tokens limits one evaluation"),
        (["budget = { daily_cost_usd = -0.01 }"], "daily_cost_usd is -0.01, expected US dollars"),
        (["budget = { daily_cost_usd = inf }"], "budget.daily_cost_usd is inf, expected US"),
        (["budget = { daily_cost_usd = nan }"], "budget.daily_cost_usd is nan, expected US"),
        (["budget = { daily_cost_usd = true }"], "budget.daily_cost_usd is true, expected US"),
        (["budget = {}"], "budget is empty, expected a limit"),
        (['budget = { on_budget_exhausted = "warn" }'], "budget names no limit"),
        (
            ['budget = { daily_cost_usd = 1, on_budget_exhausted = "drop" }'],
            "is 'drop', expected one of false, warn, fail, retry_later",
        ),
        (
            ["budget = { max_autonomous_decisions_per_hour = 1 }"],
            "max_autonomous_decisions_per_hour is not built in this release",
        ),
        (['when = "f"', "when_budget = { tokens_max = 0 }"], "tokens_max is 0"),
        (['when = "f"', 'when_budget = { timeout = "25h" }'], "expected at most a day"),
        (
            ['when = "f"', 'when_budget = { timeout = "1d" }'],
            "expected a duration from '1ms' on, such as",
        ),
    ],
)
def test_what_would_limit_nothing_or_cannot_is_refused(lines: list[str], words: str) -> None:
    found = parse(*lines)
    assert isinstance(found, tuple)
    assert words in "\n".join(found)


def test_a_namespace_has_money_limits_only() -> None:
    found = parse(before="[orchestrator]\nbudget = { max_tokens = 1 }\n")
    assert isinstance(found, tuple)
    assert "orchestrator.budget.max_tokens is not a key here" in found[0]


def test_max_concurrent_of_a_budget_becomes_concurrency_and_says_so() -> None:
    old, new = "budget = { max_concurrent = 3 }", "concurrency = { max = 3 }"
    assert definition(old) == definition(new)
    (warning,) = manifest(old).warnings
    assert "budget.max_concurrent is deprecated" in warning
    assert new in warning


def test_an_explicit_concurrency_wins_over_max_concurrent() -> None:
    lines = ("budget = { max_concurrent = 3 }", "concurrency = { max = 5 }")
    assert definition(*lines)["concurrency"]["max"] == 5
    assert "passed over" in manifest(*lines).warnings[0]
