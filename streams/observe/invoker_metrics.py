"""Metrics of the invoker: what runs, what it came to, and how long it took."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class InvokerMetrics:
    """Observes one invoker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outstanding = Gauge("harn_invoker_outstanding", "Invocations held, waiting or running.", registry=registry)
        self._finished = Counter(
            "harn_invoker_invocations", "Invocations that ended, by outcome.", ["outcome"], registry=registry
        )
        self._seconds = Histogram(
            "harn_invoker_handler_seconds", "Run time of handlers.", buckets=_SECONDS, registry=registry
        )

    def started(self) -> None:
        """A handler started."""

    def finished(self, outcome: str, seconds: float) -> None:
        """An invocation ended."""
        self._finished.labels(outcome).inc()
        self._seconds.observe(seconds)

    def outstanding(self, count: int) -> None:
        """So many invocations are held."""
        self._outstanding.set(count)
