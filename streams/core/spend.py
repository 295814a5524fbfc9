"""What a binding may spend, as its definition declares it.

Money is in millionths of a US dollar, windows are the UTC hour and the UTC day.

Source: SEMANTICS 1.4, 2.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streams.core.wire import BindingDefinition

STRATEGIES = ("false", "warn", "fail", "retry_later")
"""What may follow when a budget is used up; the first is the default."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Money per window; None is no limit."""

    hourly_micros: int | None = None
    daily_micros: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return self.hourly_micros is not None or self.daily_micros is not None

    def quantum_micros(self, partitions: int) -> int:
        """How much a partition may spend before it tells the others."""
        least = min(each for each in (self.hourly_micros, self.daily_micros) if each is not None)
        return max(least // (4 * partitions), 1)


@dataclass(frozen=True, slots=True)
class Spend:
    """The budgets of one binding.

    `trigger` and `namespace` are limits by scope; `max_cost_micros` and `tokens_max` those of one
    evaluation of the predicate.
    """

    trigger: Limits
    namespace: Limits
    max_cost_micros: int | None
    tokens_max: int | None
    strategy: str

    def scopes(self, binding: BindingDefinition) -> tuple[tuple[str, Limits], ...]:
        """The scopes that have limits, with those."""
        scopes = (
            (f"t:{binding['trigger_id']}", self.trigger),
            (f"n:{binding['namespace']}", self.namespace),
        )
        return tuple((scope, limits) for scope, limits in scopes if limits.any)


def spend_of(table: Mapping[str, Any], /) -> Spend | None:
    """Read the budgets out of a binding's canonical definition; None when it has none."""
    budget: Mapping[str, Any] = table.get("budget", {})
    whole: Mapping[str, Any] = table.get("orchestrator_budget", {})
    each: Mapping[str, Any] = table.get("when_budget", {})
    if not budget and not whole and not each:
        return None
    return Spend(
        trigger=_limits(budget),
        namespace=_limits(whole),
        max_cost_micros=each.get("max_cost_micros", budget.get("max_cost_micros")),
        tokens_max=each.get("tokens_max", budget.get("tokens_max")),
        strategy=budget.get("on_budget_exhausted", STRATEGIES[0]),
    )


def _limits(table: Mapping[str, Any]) -> Limits:
    return Limits(table.get("hourly_cost_micros"), table.get("daily_cost_micros"))
