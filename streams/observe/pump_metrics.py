"""Metrics of the pump: what waits before it, what is behind it, and for how long it holds back."""

from __future__ import annotations

import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3_600.0)


class PumpMetrics:
    """Observes the pump of one topic."""

    def __init__(self, registry: CollectorRegistry, topic: str) -> None:
        self._backlog = Gauge(
            "harn_orchestrator_pump_backlog",
            "Records of the topic that this member has not folded yet.",
            ["topic"],
            registry=registry,
        ).labels(topic)
        self._outstanding = Gauge(
            "harn_orchestrator_pump_outstanding",
            "Invocations that the invokers have not settled, in the whole cluster.",
            ["topic"],
            registry=registry,
        ).labels(topic)
        self._delay = Histogram(
            "harn_orchestrator_pump_admission_delay_seconds",
            "From a record's append until it may be folded.",
            ["topic"],
            buckets=_SECONDS,
            registry=registry,
        ).labels(topic)

    def backlog(self, lags: Mapping[int, int]) -> None:
        """So many records of each owned partition wait."""
        self._backlog.set(sum(lags.values()))

    def outstanding(self, count: int) -> None:
        """So many invocations are before the invokers."""
        self._outstanding.set(count)

    def admitted(self, appended_ms: int) -> None:
        """Records go on, the first of which was appended then; by two clocks, so >= 0."""
        self._delay.observe(max(0, time.time_ns() // 1_000_000 - appended_ms) / 1_000)
