"""Metrics of a stage, a function of its steps.

Source: STYLE 2.11; DESIGN "The stage runtime".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streams.engine import Step
from streams.observe.cron_metrics import CronMetrics
from streams.observe.scheduler_metrics import SchedulerMetrics
from streams.observe.trigger_metrics import TriggerMetrics

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SCHEDULER = "scheduler"
_INBOX = "inbox"
_BUDGETS = "m"  # rows of dispatch that say what was spent
_SCHEDULES = "c"  # rows of inbox that are timers of cron triggers

_RECORDS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)


class Kept(Protocol):
    """What is asked of a partition's rows."""

    def counts(self) -> dict[str, int]:
        """Rows with a due time by prefix."""
        ...

    def of_prefix(self, prefix: str) -> Iterator[tuple[str, Any]]:
        """Rows of one such prefix."""
        ...


class StageCollectors:
    """The collectors of all stages, once per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        stage, partition = ["stage"], ["stage", "partition"]
        self.records = Counter(
            "harn_stage_records", "Records folded and committed.", stage, registry=registry
        )
        self.outputs = Counter(
            "harn_stage_outputs", "Records appended by folds.", stage, registry=registry
        )
        self.rows_written = Counter(
            "harn_stage_rows_written", "Rows written.", stage, registry=registry
        )
        self.quarantined = Counter(
            "harn_stage_quarantined", "Records quarantined.", stage, registry=registry
        )
        self.transactions = Counter(
            "harn_stage_transactions", "Transactions committed.", stage, registry=registry
        )
        self.batch_records = Histogram(
            "harn_stage_batch_records",
            "Records per transaction.",
            stage,
            buckets=_RECORDS,
            registry=registry,
        )
        self.fold_seconds = Histogram(
            "harn_stage_fold_seconds",
            "Time to fold and encode a batch.",
            stage,
            buckets=_SECONDS,
            registry=registry,
        )
        self.commit_seconds = Histogram(
            "harn_stage_commit_seconds",
            "Time of a transaction.",
            stage,
            buckets=_SECONDS,
            registry=registry,
        )
        self.partitions = Gauge(
            "harn_stage_partitions", "Partitions owned.", stage, registry=registry
        )
        self.rows = Gauge("harn_stage_rows", "Rows held.", partition, registry=registry)
        self.lag = Gauge(
            "harn_stage_lag_records", "Records not yet folded.", partition, registry=registry
        )
        self.halted = Gauge(
            "harn_stage_partition_halted",
            "1 while a partition waits for an operator.",
            partition,
            registry=registry,
        )
        self.kept = Gauge(
            "harn_stage_rows_kept",
            "Rows held that have a due time, by their prefix; the topology page names them.",
            ["stage", "partition", "prefix"],
            registry=registry,
        )
        self.consumer_lag = Gauge(
            "harn_event_log_consumer_lag",
            "Records of the partitions owned that were not yet folded.",
            ["topic", "consumer"],
            registry=registry,
        )
        self.triggers = TriggerMetrics(registry)
        self.schedules = CronMetrics(registry)
        self.queues = SchedulerMetrics(registry)


class StageMetrics:
    """The metrics of one stage.

    Args:    topic, consumer: its mailbox and its group.
    """

    def __init__(
        self, collectors: StageCollectors, stage: str, *, topic: str = "", consumer: str = ""
    ) -> None:
        self._collectors = collectors
        self._stage = stage
        self._lag = collectors.consumer_lag.labels(topic, consumer)
        self._lags: dict[int, int] = {}
        self._prefixes: dict[int, frozenset[str]] = {}
        self._records = collectors.records.labels(stage)
        self._outputs = collectors.outputs.labels(stage)
        self._rows_written = collectors.rows_written.labels(stage)
        self._quarantined = collectors.quarantined.labels(stage)
        self._transactions = collectors.transactions.labels(stage)
        self._batch_records = collectors.batch_records.labels(stage)
        self._fold_seconds = collectors.fold_seconds.labels(stage)
        self._commit_seconds = collectors.commit_seconds.labels(stage)
        self._owned: set[int] = set()

    def owned(self, partitions: Collection[int]) -> None:
        """This member owns these partitions now; what it knew of others is another's to say."""
        self._collectors.partitions.labels(self._stage).set(len(partitions))
        for partition in self._owned.difference(partitions):
            for gauge in (self._collectors.rows, self._collectors.lag, self._collectors.halted):
                gauge.remove(self._stage, str(partition))
            for prefix in self._prefixes.pop(partition, ()):
                self._collectors.kept.remove(self._stage, str(partition), prefix)
            self._lags.pop(partition, None)
            self._collectors.triggers.spent(partition, {})
            self._collectors.triggers.pending(partition, {}, 0)
            if self._stage == _INBOX:
                self._collectors.schedules.gone(partition)
        self._lag.set(sum(self._lags.values()))
        self._owned = set(partitions)
        if self._stage == _SCHEDULER:
            self._collectors.queues.owned(partitions)

    def folded(self, step: Step, seconds: float) -> None:
        """A batch was folded and encoded."""
        self._batch_records.observe(step.records)
        self._fold_seconds.observe(seconds)

    def committed(self, step: Step, seconds: float) -> None:
        """A batch was committed."""
        self._transactions.inc()
        self._records.inc(step.records)
        self._outputs.inc(len(step.outputs))
        self._rows_written.inc(len(step.rows))
        if step.quarantined:
            self._quarantined.inc(step.quarantined)
        self._commit_seconds.observe(seconds)
        if not step.notes:
            return
        if self._stage == _SCHEDULER:
            self._collectors.queues.committed(step.notes)
        else:
            self._collectors.triggers.committed(step.notes, step.position.now_ms)

    def standing(self, partition: int, *, rows: int, lag: int) -> None:
        """Where a partition stands."""
        label = str(partition)
        self._lags[partition] = lag
        self._lag.set(sum(self._lags.values()))
        self._collectors.rows.labels(self._stage, label).set(rows)
        self._collectors.lag.labels(self._stage, label).set(lag)

    def keeps(self, partition: int, rows: Kept) -> None:
        """Which rows a partition keeps: those that have a due time."""
        counts = rows.counts()
        for prefix, count in counts.items():
            self._collectors.kept.labels(self._stage, str(partition), prefix).set(count)
        self._prefixes[partition] = frozenset(counts)
        if counts.get(_BUDGETS):
            spent = {row["scope"]: row["day_micros"] for _, row in rows.of_prefix(_BUDGETS)}
            self._collectors.triggers.spent(partition, spent)

    def schedules(self, partition: int, rows: Kept, now_ms: int) -> None:
        """How the timers of cron triggers stand in a partition; `now_ms` is ms since epoch."""
        if self._stage == _INBOX:
            timers = (row for _, row in rows.of_prefix(_SCHEDULES))
            self._collectors.schedules.stands(partition, timers, now_ms)

    def pending(self, partition: int, oldest_ms: Mapping[str, int], now_ms: int) -> None:
        """When the oldest event of each trigger that waits for its end was accepted."""
        self._collectors.triggers.pending(partition, oldest_ms, now_ms)

    def halted(self, partition: int, *, halted: bool) -> None:
        """A partition stopped before a record, or goes on."""
        self._collectors.halted.labels(self._stage, str(partition)).set(1 if halted else 0)
