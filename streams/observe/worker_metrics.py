"""Metrics of a worker: what it ran, and what of it counted."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from streams.core.wire import JobResponse
from streams.observe.children import Children
from streams.observe.loop_histogram import LoopHistogram
from streams.observe.relay_metrics import QueueLabels

__all__ = ["WorkerMetrics"]

_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 3_600.0)


class WorkerMetrics:
    """Counts what a worker does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._label = QueueLabels()
        self._children = Children()
        self._jobs = Counter(
            "harn_worker_jobs",
            "Jobs that ended, by outcome.",
            ["queue", "outcome"],
            registry=registry,
        )
        self._seconds = LoopHistogram(
            "harn_worker_job_seconds",
            "Time from a job's begin to its outcome.",
            ["queue"],
            bounds=_SECONDS,
            registry=registry,
        )
        self._acked = Counter(
            "harn_worker_jobs_acked", "Jobs whose ack is in the log.", ["queue"], registry=registry
        )
        self._lost = Counter(
            "harn_worker_claims_lost",
            "Claims that ran out while their handlers ran.",
            registry=registry,
        )
        self._strays = Gauge(
            "harn_worker_strays",
            "Handlers that were given up and run on all the same.",
            registry=registry,
        )

        self._blocked = Counter(
            "harn_worker_loop_blocked",
            "Times that a handler of a worker held up its event loop for too long.",
            registry=registry,
        )

    def finished(self, queue: str, outcome: str, seconds: float) -> None:
        """A job ended."""
        label = self._label(queue)
        self._children.of(self._jobs, label, outcome).inc()
        self._seconds.of(label).observe(seconds)

    def answered(self, response: JobResponse) -> None:
        """Nothing is counted here."""

    def settled(self, queue: str, count: int, *, acked: bool) -> None:
        """Answers are in the log."""
        if acked:
            self._children.of(self._acked, self._label(queue)).inc(count)

    def claims_lost(self, count: int) -> None:
        """Claims ran out."""
        if count:
            self._lost.inc(count)

    def strays(self, count: int) -> None:
        """So many handlers run on."""
        self._strays.set(count)

    def loop_blocked(self) -> None:
        """A handler holds up the event loop."""
        self._blocked.inc()
