"""One line of the results: what was measured, every round of it, and whether the target holds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Pick = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Target:
    """A bound that a row's value must keep."""

    bound: float
    more_is_better: bool

    def holds(self, value: float) -> bool:
        """Whether `value` keeps the bound."""
        return value >= self.bound if self.more_is_better else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.more_is_better else '<='} {self.bound:g}"


def at_least(bound: float) -> Target:
    """More is better."""
    return Target(bound, more_is_better=True)


def at_most(bound: float) -> Target:
    """Less is better."""
    return Target(bound, more_is_better=False)


@dataclass(frozen=True, slots=True)
class Row:
    """A measured quantity.

    `runs` holds every round in order, the worst included; the value is what `pick` makes of them,
    their median unless the target speaks of the worst.  A row without a target stands beside
    another one to explain it.
    """

    name: str
    unit: str
    runs: Sequence[float]
    target: Target | None = None
    pick: Pick = statistics.median
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def value(self) -> float:
        """The row's one number."""
        return self.pick(self.runs)

    @property
    def holds(self) -> bool | None:
        """Whether the target holds; None without one."""
        return None if self.target is None else self.target.holds(self.value)

    def as_json(self) -> dict[str, Any]:
        """The row as it is written to the results."""
        body: dict[str, Any] = {
            "name": self.name,
            "value": _short(self.value),
            "unit": self.unit,
            "target": None if self.target is None else str(self.target),
            "holds": self.holds,
            "runs": [_short(run) for run in self.runs],
        }
        if self.note:
            body["note"] = self.note
        return body | self.details

    def __str__(self) -> str:
        verdict = {True: "holds", False: "MISSED", None: ""}[self.holds]
        runs = " ".join(f"{_short(run):g}" for run in self.runs)
        target = "" if self.target is None else str(self.target)
        return (
            f"{self.name:<44} {_short(self.value):>10g} {self.unit:<10} {target:>10} {verdict:<7}"
            f" [{runs}]"
        )


def _short(value: float) -> float:
    """Four significant digits at least: more would claim what was not measured."""
    return round(value) if abs(value) >= 1_000 else float(f"{value:.4g}")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least `share` of them do not exceed (nearest rank)."""
    rank = math.ceil(round(share * len(values), 6))
    return sorted(values)[max(rank, 1) - 1]
