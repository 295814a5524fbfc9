"""Metrics of the invoker: what runs, what it came to, how long it waited and took."""

from __future__ import annotations

from collections import Counter as Counts
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from streams.observe.children import Children
from streams.observe.loop_histogram import LoopHistogram
from streams.observe.trigger_metrics import TriggerLabels

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class InvokerMetrics:
    """Observes one invoker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        running = Gauge("harn_invoker_running", "Handlers that run now.", registry=registry)
        running.set_function(lambda: self._running)
        self._running = 0  # it changes twice with each invocation, and is seldom looked at
        self._finished = Counter(
            "harn_invoker_invocations",
            "Invocations that ended, by outcome.",
            ["outcome"],
            registry=registry,
        )
        seconds = LoopHistogram(
            "harn_invoker_handler_seconds",
            "Run time of handlers.",
            bounds=_SECONDS,
            registry=registry,
        )
        self._seconds = seconds.of()
        self._in_flight = Gauge(
            "harn_trigger_inflight",
            "Handlers of a trigger that run now.",
            ["trigger_id"],
            registry=registry,
        )
        self._runtime = LoopHistogram(
            "harn_trigger_dispatch_runtime_seconds",
            "Run time of a trigger's handlers.",
            ["trigger_id", "status"],
            bounds=_SECONDS,
            registry=registry,
        )
        self._waited = LoopHistogram(
            "harn_trigger_queue_age_at_dispatch_start_seconds",
            "From the event's acceptance to its handler's start.",
            ["trigger_id"],
            bounds=_SECONDS,
            registry=registry,
        )
        self._children = Children()
        self._label = TriggerLabels()
        self._running_of: Counts[str] = Counts()
        self._unusable = Counter(
            "harn_invoker_unusable_intents",
            "Intents that could not be read.",
            registry=registry,
        )
        self._late = Counter(
            "harn_invoker_late_renewals",
            "Renewals that came after the lease had run out.",
            registry=registry,
        )

        self._strays = Gauge(
            "harn_invoker_strays",
            "Handlers that were given up and run on all the same.",
            registry=registry,
        )
        self._blocked = Counter(
            "harn_invoker_loop_blocked",
            "Times that a handler was found to hold up the event loop.",
            registry=registry,
        )

    def started(self, trigger_id: str, waited_ms: int) -> None:
        """A handler starts, so long after its event was accepted."""
        label = self._label(trigger_id)
        self._waited.of(label).observe(waited_ms / 1000)
        if label not in self._running_of:
            self._in_flight.labels(label).set_function(partial(self._running_of.__getitem__, label))
        self._running_of[label] += 1

    def finished(self, trigger_id: str, outcome: str, seconds: float | None) -> None:
        """An invocation ended, so long after its handler started; None when none had."""
        self._children.of(self._finished, outcome).inc()
        if seconds is not None:
            self._seconds.observe(seconds)
            label = self._label(trigger_id)
            self._running_of[label] -= 1
            self._runtime.of(label, outcome).observe(seconds)

    def outstanding(self, count: int) -> None:
        """So many handlers run now."""
        self._running = count

    def unusable(self) -> None:
        """An intent could not be read and was passed over."""
        self._unusable.inc()

    def leases_late(self, late_ms: int) -> None:  # noqa: ARG002 - the log line has the number
        """Renewals came so late that leases have run out."""
        self._late.inc()

    def strays(self, count: int) -> None:
        """So many handlers were given up and run on all the same."""
        self._strays.set(count)

    def loop_blocked(self) -> None:
        """A handler holds up the event loop."""
        self._blocked.inc()
