"""Metrics of ingest: what was answered, how fast, and how many events came with it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class IngestMetrics:
    """Observes the event API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "harn_ingest_requests", "Requests answered, by status.", ["status"], registry=registry
        )
        self._events = Counter(
            "harn_ingest_events", "Events in the requests answered.", ["status"], registry=registry
        )
        self._seconds = Histogram(
            "harn_ingest_request_seconds",
            "From a request's arrival to its answer.",
            buckets=_SECONDS,
            registry=registry,
        )

    def answered(self, status: int, events: int, seconds: float) -> None:
        """A request with so many events was answered."""
        label = str(status)
        self._requests.labels(label).inc()
        self._events.labels(label).inc(events)
        self._seconds.observe(seconds)
