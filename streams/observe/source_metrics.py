"""Metrics of stream sources: what became of the records that each trigger read."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class SourceMetrics:
    """Observes the consumers of stream triggers; a process has at most a hundred of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._records = Counter(
            "harn_stream_records",
            "Records of stream sources whose place was moved past, by what became of them.",
            ["trigger_id", "outcome"],
            registry=registry,
        )

    def took(self, trigger_id: str, *, events: int, rejected: int, passed_over: int) -> None:
        """Records of one round are in the log, or were none of the trigger's."""
        counts = {"event": events, "rejected": rejected, "passed_over": passed_over}
        for outcome, count in counts.items():
            self._records.labels(trigger_id, outcome).inc(count)
