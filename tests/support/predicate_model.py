"""A predicate with its breaker and its budget, in one partition, said in the plainest words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TOOK_MS = 1_000  # of every evaluation, by its invoker's clock


@dataclass(slots=True)
class PredicateModel:
    """Evaluations under way with what is set aside for them, deferred ones with their time."""

    hourly: int | None
    daily: int | None
    cost_max: int
    strategy: str
    now_ms: int = 0
    evaluating: dict[str, int] = field(default_factory=dict[str, int])
    deferred: dict[str, int] = field(default_factory=dict[str, int])
    ended: dict[str, str] = field(default_factory=dict[str, str])
    bills: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    failures: int = 0
    open_until_ms: int = 0

    def spent_since(self, start_ms: int) -> int:
        """What was spent from then on."""
        return sum(cost for at_ms, cost in self.bills if at_ms >= start_ms)

    def hour(self) -> int:
        """What was spent in this hour."""
        return self.spent_since(self.now_ms - self.now_ms % HOUR_MS)

    def day(self) -> int:
        """What was spent in this day."""
        return self.spent_since(self.now_ms - self.now_ms % DAY_MS)

    def expected(self) -> int:
        """What the next evaluation is expected to cost."""
        last = [cost for _, cost in self.bills[-100:]]
        return math.ceil(sum(last) / len(last)) if last else self.cost_max

    def moves_time(self, now_ms: int) -> None:
        """Deferred dispatches whose time has come are looked at again."""
        self.now_ms = now_ms
        while due := sorted((at, name) for name, at in self.deferred.items() if at <= now_ms):
            name = due[0][1]
            del self.deferred[name]
            self.begin(name)

    def begin(self, name: str) -> None:
        """A dispatch comes to its predicate."""
        if self.now_ms < self.open_until_ms:
            self.ended[name] = "skipped"
            return
        coming = sum(self.evaluating.values()) + self.expected()
        over = (self.hourly is not None and self.hour() + coming > self.hourly) or (
            self.daily is not None and self.day() + coming > self.daily
        )
        if not over or self.strategy == "warn":
            self.evaluating[name] = self.expected()
        elif self.strategy == "retry_later":
            window_ms = DAY_MS if self.hourly is None else HOUR_MS
            self.deferred[name] = self.now_ms - self.now_ms % window_ms + window_ms
        else:
            self.ended[name] = "skipped" if self.strategy == "false" else "budget_exhausted"

    def answer(self, name: str, verdict: bool | None, cost: int) -> None:
        """An evaluation ends; None is no verdict."""
        del self.evaluating[name]
        self.bills.append((self.now_ms, cost))
        if verdict is None:
            self.failures += 1
            if self.failures >= 3:
                until_ms = self.now_ms - TOOK_MS + 300_000
                self.open_until_ms = max(self.open_until_ms, until_ms)
        else:
            self.failures = self.open_until_ms = 0
        if cost > self.cost_max and self.strategy == "fail":
            self.ended[name] = "budget_exhausted"
        elif cost > self.cost_max and self.strategy != "warn":
            self.ended[name] = "skipped"
        else:
            self.ended[name] = "succeeded" if verdict else "skipped"
