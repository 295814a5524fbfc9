"""Metrics of schedules: how long ago each cron trigger ticked, and how late its next tick is.

The one member that owns a trigger's timer tells of it.

Source: STYLE 2.11.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from prometheus_client import CollectorRegistry, Gauge

from streams.core.wire import RowCron

__all__ = ["TRIGGERS_MAX", "CronMetrics"]

TRIGGERS_MAX = 500
"""Triggers that a process tells apart; of further ones nothing is told."""


class CronMetrics:
    """Observes the timers of cron triggers in the inbox partitions of this member."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._age = Gauge(
            "harn_cron_last_tick_age_seconds",
            "Since the trigger's last tick was fired or passed over, or since it was armed.",
            ["trigger_id"],
            registry=registry,
        )
        self._overdue = Gauge(
            "harn_cron_overdue_seconds",
            "How long the trigger's next tick is overdue; 0 while it lies ahead.",
            ["trigger_id"],
            registry=registry,
        )
        self._of: dict[int, frozenset[str]] = {}

    def stands(self, partition: int, rows: Iterable[RowCron], now_ms: int) -> None:
        """Take the timers of a partition, all of them; `now_ms` is ms since epoch."""
        before = self._of.pop(partition, frozenset())
        room = TRIGGERS_MAX - sum(len(each) for each in self._of.values())
        told: set[str] = set()
        for row in rows:
            if len(told) >= room:
                break
            trigger_id, due_ms = row["trigger_id"], row["due_ms"]
            told.add(trigger_id)
            self._age.labels(trigger_id).set(max(0, now_ms - row["considered_ms"]) / 1_000)
            late_ms = 0 if due_ms is None else max(0, now_ms - due_ms)
            self._overdue.labels(trigger_id).set(late_ms / 1_000)
        self._forget(before - told)
        if told:
            self._of[partition] = frozenset(told)

    def gone(self, partition: int) -> None:
        """Another member tells of this partition's triggers."""
        self._forget(self._of.pop(partition, frozenset()))

    def _forget(self, trigger_ids: Collection[str]) -> None:
        for trigger_id in trigger_ids:
            self._age.remove(trigger_id)
            self._overdue.remove(trigger_id)
