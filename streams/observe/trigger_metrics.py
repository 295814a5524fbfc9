"""Metrics of triggers, a function of what stages committed: nothing is counted that did not happen.

A redelivered record is folded once and counted once, as its outputs are.  Labels are bounded: past
`TRIGGERS_MAX` trigger ids the rest counts as `other`.  Ages are by the broker's clock, from the
envelope's append, unless it is said otherwise.

Source: SEMANTICS 2.13, 2.14.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streams.core.provider_catalog import PROVIDERS
from streams.core.record import Output
from streams.observe.children import Children

__all__ = ["OBSERVED", "OTHER", "TRIGGERS_MAX", "TriggerLabels", "TriggerMetrics"]

TRIGGERS_MAX = 500
"""Trigger ids that one process tells apart; each costs a few dozen time series."""

OTHER = "other"

_ATTEMPTS_TOLD = 10
_PREDICATE = "predicate:"  # how the destination of a predicate's breaker begins
_CIRCUIT_ACTIONS: Mapping[str, str] = {
    "open": "opened",
    "half_open": "half_open_probe",
    "closed": "closed",
}
_TRIGGER_SCOPE = "t:"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 600.0, 3_600.0)
_DELAYS = (1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
_AGES = (1.0, 10.0, 60.0, 600.0, 3_600.0, 18_000.0, 86_400.0, 604_800.0)

_DISPATCHES = "trigger.dispatches"
_INVOCATIONS = "trigger.invocations"
_LIFECYCLE = "triggers.lifecycle"
_OUTBOX = "trigger.outbox"
_ATTEMPTS = "trigger.attempts"
_DLQ = "trigger.dlq"

_NOTES: Mapping[tuple[str, str], str] = {
    (_DISPATCHES, "event_matched"): "_on_matched",
    (_LIFECYCLE, "EventDeduplicated"): "_on_deduplicated",
    (_LIFECYCLE, "EventFiltered"): "_on_filtered",
    (_LIFECYCLE, "EventUnmatched"): "_on_unmatched",
    (_LIFECYCLE, "predicate.evaluated"): "_on_evaluated",
    (_LIFECYCLE, "predicate.budget_exceeded"): "_on_exhausted",
    (_LIFECYCLE, "DispatchParked"): "_on_parked",
    (_LIFECYCLE, "CircuitChanged"): "_on_circuit",
    (_INVOCATIONS, "invoke"): "_on_invoke",
    (_OUTBOX, "dispatch_succeeded"): "_on_succeeded",
    (_OUTBOX, "dispatch_skipped"): "_on_skipped",
    (_OUTBOX, "dispatch_cancelled"): "_on_cancelled",
    (_ATTEMPTS, "retry_scheduled"): "_on_retry",
    (_DLQ, "dlq_moved"): "_on_dead_lettered",
}

OBSERVED = frozenset(_NOTES)
"""(topic, kind) of the outputs that are counted; stages note them as values."""

_Count = Callable[[Mapping[str, Any], int], None]


class TriggerLabels:
    """Trigger ids as labels: the first of them as they are, the rest together."""

    def __init__(self, triggers_max: int = TRIGGERS_MAX) -> None:
        self._known: set[str] = set()
        self._triggers_max = triggers_max

    def __call__(self, trigger_id: str) -> str:
        """Return the label of a trigger."""
        if trigger_id in self._known:
            return trigger_id
        if len(self._known) >= self._triggers_max:
            return OTHER
        self._known.add(trigger_id)
        return trigger_id


def _counter(registry: CollectorRegistry, name: str, doc: str, *labels: str) -> Counter:
    return Counter(f"harn_trigger_{name}", doc, labels, registry=registry)


def _histogram(
    registry: CollectorRegistry, name: str, doc: str, buckets: tuple[float, ...]
) -> Histogram:
    labels = ["trigger_id"]
    return Histogram(
        f"harn_trigger_{name}_seconds", doc, labels, buckets=buckets, registry=registry
    )


class TriggerMetrics:
    """Counts what becomes of triggers' events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, histogram = partial(_counter, registry), partial(_histogram, registry)
        self._counts: dict[tuple[str, str], _Count] = {
            observed: getattr(self, name) for observed, name in _NOTES.items()
        }
        self._children = Children()
        self._tally: dict[tuple[Any, ...], float] = {}
        self._label = TriggerLabels()
        self._received = counter(
            "received", "Events matched with a trigger.", "trigger_id", "provider"
        )
        self._deduped = counter("deduped", "Events dropped as repeats.", "trigger_id", "reason")
        self._filtered = counter("filtered", "Events kept out by a filter.", "trigger_id")
        self._unmatched = counter("unmatched", "Events that no trigger takes.", "provider")
        self._evaluations = counter(
            "predicate_evaluations", "Predicates evaluated, by verdict.", "trigger_id", "result"
        )
        self._cost = counter(
            "predicate_cost_usd", "What evaluations cost by their own word.", "trigger_id"
        )
        self._dispatched = counter(
            "dispatched",
            "Dispatches that ended, by outcome.",
            *("trigger_id", "handler_kind", "outcome"),
        )
        self._skipped = counter(
            "skipped", "Dispatches skipped, by the gate's code.", "trigger_id", "reason"
        )
        self._retries = counter(
            "retries", "Attempts scheduled after a failure.", "trigger_id", "attempt"
        )
        self._dead = counter("dlq", "Dispatches dead-lettered, by reason.", "trigger_id", "reason")
        self._exhausted = counter(
            "budget_exhausted", "Budgets found used up.", "trigger_id", "strategy"
        )
        self._today = Gauge(
            "harn_trigger_budget_cost_today_usd",
            "Spent today (UTC) by a trigger that has a budget.",
            ["trigger_id"],
            registry=registry,
        )
        self._spent: dict[int, dict[str, int]] = {}
        self._pending = Gauge(
            "harn_trigger_oldest_pending_age_seconds",
            "Since the acceptance of the oldest event whose dispatch has not ended.",
            ["trigger_id"],
            registry=registry,
        )
        self._oldest: dict[int, dict[str, int]] = {}
        self._parked = counter("parked", "Dispatches parked on an open circuit.", "trigger_id")
        self._held_back = Counter(
            "harn_backpressure_events",
            "What circuits and predicates' breakers did, and whom they turned away.",
            ["dimension", "action"],
            registry=registry,
        )
        self._admitted = histogram(
            "queue_age_at_dispatch_admission",
            "From an event's acceptance to its first attempt's intent.",
            _SECONDS,
        )
        self._delays = histogram("retry_delay", "Delays of scheduled retries.", _DELAYS)
        self._undelivered = histogram(
            "accepted_to_dlq", "From an event's receipt, by ingest's clock, to the DLQ.", _AGES
        )

    def spent(self, partition: int, micros: Mapping[str, int]) -> None:
        """What a dispatch partition knows to be spent today, by scope (`t:<trigger id>`).

        Partitions tell each other what they spend, so that the largest sum is the latest.
        """
        before = self._spent.pop(partition, {})
        if micros:
            self._spent[partition] = dict(micros)
        for scope in sorted({*before, *micros}):
            if scope.startswith(_TRIGGER_SCOPE):
                label = self._label(scope.removeprefix(_TRIGGER_SCOPE))
                most = max((each.get(scope, 0) for each in self._spent.values()), default=0)
                self._today.labels(label).set(most / 1_000_000)

    def pending(self, partition: int, oldest_ms: Mapping[str, int], now_ms: int) -> None:
        """When the oldest event of each trigger that waits in a dispatch partition was accepted.

        Both are ms since epoch; a trigger of which nothing waits any more has age 0.
        """
        before = self._oldest.pop(partition, {})
        if oldest_ms:
            self._oldest[partition] = dict(oldest_ms)
        ages: dict[str, float] = {}
        for trigger_id in sorted({*before, *oldest_ms}):
            known = [each[trigger_id] for each in self._oldest.values() if trigger_id in each]
            age_s = max(0, now_ms - min(known)) / 1_000 if known else 0.0
            label = self._label(trigger_id)
            ages[label] = max(age_s, ages.get(label, 0.0))
        for label, age_s in ages.items():
            self._pending.labels(label).set(age_s)

    def committed(self, notes: Iterable[Output], now_ms: int) -> None:
        """Count outputs that a stage committed; `now_ms` is its partition's time then."""
        for topic, kind, _, value, *_ in notes:
            if value is not None:  # a tombstone says nothing
                self._counts[topic, kind](value, now_ms)
        # A batch is many events of few triggers: a time series is touched once for all of them.
        for (counter, *labels), count in self._tally.items():
            self._children.of(counter, *labels).inc(count)
        self._tally.clear()

    def _count(self, counter: Counter, *labels: str, by: float = 1) -> None:
        key = (counter, *labels)
        self._tally[key] = self._tally.get(key, 0) + by

    def _observe(self, histogram: Histogram, trigger_id: str, value: float) -> None:
        self._children.of(histogram, trigger_id).observe(value)

    def _on_matched(self, value: Mapping[str, Any], _now_ms: int) -> None:
        self._count(self._received, self._label(value["trigger_id"]), value["event"]["provider"])

    def _on_deduplicated(self, _value: Mapping[str, Any], _now_ms: int) -> None:
        self._count(self._deduped, "", "inbox_duplicate")  # dropped before it meets a trigger

    def _on_filtered(self, value: Mapping[str, Any], _now_ms: int) -> None:
        self._count(self._filtered, self._label(value["trigger_id"]))

    def _on_unmatched(self, value: Mapping[str, Any], _now_ms: int) -> None:
        provider = value["provider"]
        self._count(self._unmatched, provider if provider in PROVIDERS else OTHER)

    def _on_invoke(self, value: Mapping[str, Any], now_ms: int) -> None:
        if (value["attempt"], value["fence"], value["purpose"]) == (1, 1, "handler"):
            age_s = max(0, now_ms - value["accepted_at_ms"]) / 1_000
            self._observe(self._admitted, self._label(value["trigger_id"]), age_s)

    def _on_evaluated(self, value: Mapping[str, Any], _now_ms: int) -> None:
        trigger_id = self._label(value["trigger_id"])
        result = "true" if value["result"] else "false"
        self._count(self._evaluations, trigger_id, "failed" if value["reason"] else result)
        if value["cost_usd_micros"]:
            self._count(self._cost, trigger_id, by=value["cost_usd_micros"] / 1_000_000)

    def _on_exhausted(self, value: Mapping[str, Any], _now_ms: int) -> None:
        self._count(self._exhausted, self._label(value["trigger_id"]), value["strategy"])

    def _on_parked(self, value: Mapping[str, Any], _now_ms: int) -> None:
        self._count(self._parked, self._label(value["trigger_id"]))

    def _on_circuit(self, value: Mapping[str, Any], _now_ms: int) -> None:
        dimension = "predicate" if value["destination"].startswith(_PREDICATE) else "circuit"
        self._count(self._held_back, dimension, _CIRCUIT_ACTIONS.get(value["state"], OTHER))

    def _on_succeeded(self, value: Mapping[str, Any], _now_ms: int) -> None:
        self._ended(value, value["handler_kind"], "succeeded")

    def _on_skipped(self, value: Mapping[str, Any], _now_ms: int) -> None:
        self._ended(value, value["handler_kind"], "skipped")
        detail: Mapping[str, Any] = json.loads(value["detail"])
        reason = str(detail.get("flow_control", value["skip_stage"]))
        trigger_id = self._label(value["trigger_id"])
        self._count(self._skipped, trigger_id, reason)
        if value["skip_stage"] == "dedupe":
            self._count(self._deduped, trigger_id, "dedupe_key")

    def _on_cancelled(self, value: Mapping[str, Any], _now_ms: int) -> None:
        self._ended(value, value["handler_kind"], "cancelled")

    def _on_retry(self, value: Mapping[str, Any], _now_ms: int) -> None:
        trigger_id, attempt = self._label(value["trigger_id"]), value["attempt"]
        told = str(attempt) if attempt <= _ATTEMPTS_TOLD else f"over {_ATTEMPTS_TOLD}"
        self._count(self._retries, trigger_id, told)
        self._observe(self._delays, trigger_id, value["delay_ms"] / 1_000)

    def _on_dead_lettered(self, value: Mapping[str, Any], now_ms: int) -> None:
        self._ended(value, "", "dlq")
        trigger_id = self._label(value["trigger_id"])
        self._count(self._dead, trigger_id, value["reason"])
        if value["reason"] == "circuit_open":
            self._count(self._held_back, "circuit", "fail_fast")
        received_ms = _epoch_ms(value["event"]["received_at"])
        if received_ms is not None:
            self._observe(self._undelivered, trigger_id, max(0, now_ms - received_ms) / 1_000)

    def _ended(self, value: Mapping[str, Any], handler_kind: str, outcome: str) -> None:
        labels = (self._label(value["trigger_id"]), handler_kind, outcome)
        self._count(self._dispatched, *labels)


def _epoch_ms(moment: str) -> int | None:
    """Return an RFC 3339 time as ms since epoch; None when somebody wrote another text."""
    try:
        return int(datetime.fromisoformat(moment).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None
