"""Metrics of stream sources: what became of the records that each trigger read, and what waits."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge


class SourceMetrics:
    """Observes the consumers of stream triggers; a process has at most a hundred of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._records = Counter(
            "harn_stream_records",
            "Records of stream sources whose place was moved past, by what became of them.",
            ["trigger_id", "outcome"],
            registry=registry,
        )

        self._lag = Gauge(
            "harn_stream_source_lag_records",
            "Records of the partitions read here that the trigger's group has not moved past.",
            ["trigger_id", "topic"],
            registry=registry,
        )
        self._topics: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()  # sources have a thread each

    def stands(self, trigger_id: str, lags: Mapping[str, int]) -> None:
        """A trigger is so many records behind, by topic; a topic that is not named is not read."""
        with self._lock:
            for topic, lag in lags.items():
                self._lag.labels(trigger_id, topic).set(lag)
            for topic in self._topics.pop(trigger_id, frozenset()).difference(lags):
                self._lag.remove(trigger_id, topic)
            if lags:
                self._topics[trigger_id] = frozenset(lags)

    def took(self, trigger_id: str, *, events: int, rejected: int, passed_over: int) -> None:
        """Records of one round are in the log, or were none of the trigger's."""
        counts = {"event": events, "rejected": rejected, "passed_over": passed_over}
        for outcome, count in counts.items():
            self._records.labels(trigger_id, outcome).inc(count)
