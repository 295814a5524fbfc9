"""Metrics of agent turns, with the names that users of the dispatch know.

Source: seed queue-driven-agent-dispatch, "Fleet visibility"; SEMANTICS 8.9.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

__all__ = ["TurnMetrics"]


class TurnMetrics:
    """How the fleet stands, as the API last measured it; not a number before it did."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._depth = Gauge(
            "agent_utilities_dispatch_queue_depth",
            "Turns that are enqueued and not done, those that run included.",
            ["backend"],
            registry=registry,
        )
        self._workers = Gauge(
            "agent_utilities_dispatch_workers",
            "Workers that were heard of within 90 s.",
            registry=registry,
        )
        self._workers.set(float("nan"))

    def measured(self, backend: str, *, depth: int, workers: int) -> None:
        """Tell what was measured."""
        self._depth.labels(backend).set(depth)
        self._workers.set(workers)

    def lost(self, backend: str) -> None:
        """Tell that it could not be measured: an old number would say that all is well."""
        self._depth.labels(backend).set(float("nan"))
        self._workers.set(float("nan"))
