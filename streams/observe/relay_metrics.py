"""Metrics of the relay: what it told the scheduler of each queue."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from streams.observe.children import Children

__all__ = ["OTHER", "QUEUES_MAX", "QueueLabels", "RelayMetrics"]

QUEUES_MAX = 200
"""Queues that one process tells apart; a cluster may have any number."""

OTHER = "_other"


class QueueLabels:
    """Queues as labels: the first of them as they are, the rest together."""

    def __init__(self, queues_max: int = QUEUES_MAX) -> None:
        self._known: set[str] = set()
        self._queues_max = queues_max

    def __call__(self, queue: str) -> str:
        """Return the label of a queue."""
        if queue not in self._known:
            if len(self._known) >= self._queues_max:
                return OTHER
            self._known.add(queue)
        return queue


class RelayMetrics:
    """Counts what the relay appended to the mailbox, once it is there."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._label = QueueLabels()
        self._children = Children()
        self._records = Counter(
            "harn_relay_records",
            "Records of queues' topics told to the scheduler, by what they are.",
            ["queue", "outcome"],
            registry=registry,
        )

    def relayed(self, queue: str, *, jobs: int, rejected: int) -> None:
        """The mailbox has this part of a queue."""
        label = self._label(queue)
        for outcome, count in (("job", jobs), ("rejected", rejected)):
            if count:
                self._children.of(self._records, label, outcome).inc(count)
