"""What a trigger and its namespace may spend, as a manifest declares it.

    [orchestrator]
    budget = { daily_cost_usd = 20 }      # of all triggers with a budget or a function as `when`

    [[triggers]]
    when = "gates::is_urgent"
    when_budget = { max_cost_usd = 0.01, tokens_max = 2000, timeout = "5s" }
    budget = { hourly_cost_usd = 0.5, daily_cost_usd = 5, on_budget_exhausted = "retry_later" }

Money is kept in millionths of a US dollar.

Source: SEMANTICS 1.4, 1.5, 2.6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from streams.core.flow import CEL_PREFIX
from streams.core.manifest_durations import read_timing
from streams.core.manifest_flow import read_concurrency
from streams.core.manifest_place import Place
from streams.core.manifest_table import (
    Field,
    Read,
    given_fields,
    read_choice,
    read_integer,
    read_table,
    table_of,
)
from streams.core.spend import STRATEGIES

__all__ = [
    "BUDGET_FIELDS",
    "NAMESPACE_BUDGET",
    "adopt_max_concurrent",
    "budget_rules",
    "is_function",
    "read_namespace_budget",
]

NAMESPACE_BUDGET = "orchestrator_budget"
"""Key of a definition that holds the limits of its namespace."""

_USD_MAX = 1_000_000_000
_TOKENS_MAX = 1_000_000_000
_TIMEOUT_MS_MAX = 86_400_000


def is_function(when: str | None) -> bool:
    """Whether a trigger's predicate is a function, which an invoker evaluates."""
    return bool(when) and not when.startswith(CEL_PREFIX)


def _read_cost(value: object, place: Place) -> int:
    """Take US dollars, not negative; returns millionths, rounded down."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        place.expected(value, "US dollars as a number >= 0")
        return 0
    if not math.isfinite(value) or not 0 <= value <= _USD_MAX:
        place.expected(value, f"US dollars as a number >= 0 and <= {_USD_MAX}")
        return 0
    # A product of floats may lie a hair below the number that was meant.
    return math.floor(round(value * 1_000_000, 6))


_MAX_COST = Field(name="max_cost_usd", read=_read_cost)
_WINDOWS = (
    Field(name="hourly_cost_usd", read=_read_cost),
    Field(name="daily_cost_usd", read=_read_cost),
)

_WHEN_BUDGET = (
    _MAX_COST,
    Field(name="tokens_max", read=read_integer(1, _TOKENS_MAX)),
    Field(name="timeout", read=read_timing(_TIMEOUT_MS_MAX, "a day")),
)

_BUDGET = (
    _MAX_COST,
    Field(name="max_tokens", alias="tokens_max", read=read_integer(1, _TOKENS_MAX)),
    *_WINDOWS,
    Field(name="on_budget_exhausted", read=read_choice(*STRATEGIES), default=STRATEGIES[0]),
    Field(name="max_autonomous_decisions_per_hour"),
    Field(name="max_autonomous_decisions_per_day"),
    Field(name="max_concurrent", read=read_integer(1, 1_000_000)),
)

_KEPT_AS = {
    "max_cost_usd": "max_cost_micros",
    "hourly_cost_usd": "hourly_cost_micros",
    "daily_cost_usd": "daily_cost_micros",
    "max_tokens": "tokens_max",
    "timeout": "timeout_ms",
}
"""Names that say the unit in which a value is kept."""


def _reads(fields: tuple[Field, ...]) -> Read:
    def read(value: object, place: Place) -> dict[str, Any]:
        table = table_of(value, place)
        values = read_table({} if table is None else table, fields, place)
        given = given_fields(values, fields)
        if table is not None and not table:
            place.refuse("is empty, expected a limit at least")
        return {_KEPT_AS.get(name, name): each for name, each in given.items()}

    return read


read_namespace_budget = _reads(_WINDOWS)
"""Takes `[orchestrator] budget`."""

BUDGET_FIELDS: tuple[Field, ...] = (
    Field(name="when_budget", read=_reads(_WHEN_BUDGET)),
    Field(name="budget", read=_reads(_BUDGET)),
)
"""The keys of a trigger that this module reads."""


def adopt_max_concurrent(values: dict[str, Any], place: Place) -> None:
    """Read `budget.max_concurrent` as what it is called now; an explicit `concurrency` wins."""
    budget: dict[str, Any] = values["budget"] or {}
    if "max_concurrent" not in budget:
        return
    limit = budget.pop("max_concurrent")
    written = f"concurrency = {{ max = {limit} }}"
    if values["concurrency"] is None:
        values["concurrency"] = read_concurrency({"max": limit}, place)
        warning = f"is deprecated, and taken as {written}: write that"
    else:
        warning = "is deprecated, and passed over: `concurrency` is there as well"
    place.field("budget").field("max_concurrent").warn(warning)
    if not budget:
        values["budget"] = None


def budget_rules(values: Mapping[str, Any], _exports: Mapping[str, str], place: Place) -> None:
    """What holds between a predicate and budgets: none is accepted that would limit nothing."""
    asks = is_function(values["when"])
    if values["when_budget"] is not None and not asks:
        place.field("when_budget").refuse("requires a predicate: `when` must name a function")
    budget: Mapping[str, Any] = values["budget"] or {}
    for name, spelled in (("max_cost_micros", "max_cost_usd"), ("tokens_max", "max_tokens")):
        if name in budget and not asks:
            place.field("budget").field(spelled).refuse(
                "limits one evaluation of a predicate: `when` must name a function"
            )
    limits = set(budget) - {"on_budget_exhausted"}
    if "on_budget_exhausted" in budget and not limits and not values["when_budget"]:
        place.field("budget").refuse("names no limit, so that it is never exhausted")
