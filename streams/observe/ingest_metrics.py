"""Metrics of ingest: what was answered, how fast, and how many events came with it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from streams.observe.children import Children

_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class IngestMetrics:
    """Observes the event API and webhooks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._children = Children()
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

        self._refused = Counter(
            "harn_ingest_webhooks_refused",
            "Webhook deliveries refused, by reason.",
            ["provider", "reason"],
            registry=registry,
        )
        self._normalized = Histogram(
            "harn_trigger_webhook_accepted_to_normalized_seconds",
            "From a delivery's arrival until it was checked and made an event.",
            ["provider"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._appended = Histogram(
            "harn_trigger_webhook_accepted_to_queue_append_seconds",
            "From a delivery's arrival until the broker had its event.",
            ["provider"],
            buckets=_SECONDS,
            registry=registry,
        )

    def answered(self, status: int, events: int, seconds: float) -> None:
        """A request with so many events was answered."""
        label = str(status)
        self._children.of(self._requests, label).inc()
        self._children.of(self._events, label).inc(events)
        self._seconds.observe(seconds)

    def webhook_refused(self, provider: str, reason: str) -> None:
        """A delivery was refused."""
        self._children.of(self._refused, provider, reason).inc()

    def webhook_taken(self, provider: str, normalized_s: float, appended_s: float) -> None:
        """A delivery became an event, and was in the log, so long after it came."""
        self._children.of(self._normalized, provider).observe(normalized_s)
        self._children.of(self._appended, provider).observe(appended_s)
