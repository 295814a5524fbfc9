"""Metrics of agent turns, with the names that users of the dispatch know.

Source: seed queue-driven-agent-dispatch, "Fleet visibility"; SEMANTICS 8.9.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

__all__ = ["TurnMetrics", "TurnWorkerMetrics"]


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


class TurnWorkerMetrics:
    """Counts what a worker of turns does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._turns = Counter(
            "agent_utilities_dispatch_turns",
            "Turns that this worker had, by what became of them.",
            ["outcome"],
            registry=registry,
        )
        for outcome in _OUTCOMES:
            self._turns.labels(outcome)  # there from the beginning, so that a rate can be taken
        self._strays = Gauge(
            "harn_turn_strays",
            "Calls of agents that were given up and run on all the same.",
            registry=registry,
        )
        self._blocked = Counter(
            "harn_turn_loop_blocked",
            "Times that an agent held up the event loop for too long.",
            registry=registry,
        )

    def turn_ended(self, outcome: str) -> None:
        """A turn ended, or was given back."""
        self._turns.labels(outcome).inc()

    def strays(self, count: int) -> None:
        """So many calls were given up and run on all the same."""
        self._strays.set(count)

    def loop_blocked(self) -> None:
        """An agent held up the event loop for too long."""
        self._blocked.inc()


_OUTCOMES = ("completed", "failed", "skipped", "expired", "rejected", "interrupted")
