"""Metrics of triggers are what stages committed: taken from real folds, counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from streams.codec import Codec
from streams.core.circuit import FAILURES_MAX, OPEN_MS
from streams.core.record import Output
from streams.engine import BoundStage
from streams.observe.stage_metrics import StageCollectors, StageMetrics
from streams.observe.trigger_metrics import (
    OBSERVED,
    OTHER,
    TRIGGERS_MAX,
    TriggerLabels,
    TriggerMetrics,
)
from streams.stages import FOLDS, bind
from streams.testing import envelope, event, policy, retry_policy
from tests.support.dispatch_log import completed, matched
from tests.support.gate_log import KEY, gated
from tests.support.revisions import revision, versioned
from tests.support.stage_log import StageLog
from topology import TOPOLOGY


class Observed:
    """A stage's log whose steps are counted as they are committed."""

    def __init__(self, stage: str, *bindings: Any) -> None:
        declared = TOPOLOGY.stage(stage)
        bound = BoundStage(declared, FOLDS[stage], TOPOLOGY, Codec(), 1, OBSERVED)
        self.log = StageLog(bound)
        self.registry = CollectorRegistry()
        collectors = StageCollectors(self.registry)
        self._metrics = StageMetrics(collectors, stage, topic=declared.source, consumer="harn.x")
        self.add("revision_published", revision(1, added=bindings, in_force=policy()))

    def add(self, kind: str, value: Any, **headers: str) -> None:
        self.log.add(kind, value, headers=headers)
        self._metrics.committed(self.log.steps[-1], 0.001)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"harn_trigger_{name}", labels)


def test_what_the_inbox_does_with_events_is_counted() -> None:
    seen = Observed("inbox", versioned("a"), versioned("b", events=["push"]))
    for number in range(3):
        seen.add("event_ingested", envelope(event(f"e{number}", dedupe_key="same")))
    seen.add("event_ingested", envelope(event("e4", kind="push")))
    seen.add("event_ingested", envelope(event("e5", provider="slack")))
    for provider in ("made-up", "invented"):
        seen.add("event_ingested", envelope(event(provider, provider=provider)))
    assert seen.value("received_total", trigger_id="a", provider="github") == 2
    assert seen.value("received_total", trigger_id="b", provider="github") == 1
    assert seen.value("deduped_total", trigger_id="", reason="inbox_duplicate") == 2
    assert seen.value("unmatched_total", provider="slack") == 1
    assert seen.value("unmatched_total", provider=OTHER) == 2, "senders make no time series"


def test_a_dispatch_is_counted_by_its_end_and_by_its_retries() -> None:
    retry = retry_policy("linear", max_attempts=2, delay_ms=30_000)
    seen = Observed("dispatch", versioned("a", retry=retry))
    for dispatch_id in ("good", "bad"):
        seen.add("event_matched", matched(dispatch_id, binding_key="a@v1"))
    seen.add("invocation_completed", completed("success", "good"))
    failure = {"error": "x", "error_class": "handler_error"}
    seen.add("invocation_completed", {**completed("failed", "bad"), **failure})
    seen.log.now_ms += 30_000
    seen.add("tick", {"due_ms": seen.log.now_ms})
    seen.add("invocation_completed", {**completed("failed", "bad", attempt=2, fence=2), **failure})

    dispatched = {"trigger_id": "a", "handler_kind": "local"}
    assert seen.value("dispatched_total", **dispatched, outcome="succeeded") == 1
    assert seen.value("dispatched_total", trigger_id="a", handler_kind="", outcome="dlq") == 1
    assert seen.value("dlq_total", trigger_id="a", reason="retry_exhausted") == 1
    assert seen.value("retries_total", trigger_id="a", attempt="2") == 1
    assert seen.value("retry_delay_seconds_sum", trigger_id="a") == 30
    assert seen.value("queue_age_at_dispatch_admission_seconds_count", trigger_id="a") == 2
    assert seen.value("accepted_to_dlq_seconds_count", trigger_id="a") == 1


def test_a_gate_that_skips_says_which() -> None:
    seen = Observed("dispatch", gated({"rate_limit": {"period_ms": 60_000, "max": 1}}))
    for dispatch_id in ("first", "second"):
        keys = {"rate_limit": "_global"}
        seen.add("event_matched", {**matched(dispatch_id, binding_key=KEY), "keys": keys})
    assert seen.value("skipped_total", trigger_id="triage", reason="rate_limited") == 1
    skipped = {"trigger_id": "triage", "handler_kind": "local", "outcome": "skipped"}
    assert seen.value("dispatched_total", **skipped) == 1


def test_a_repeat_by_the_trigger_s_own_key_is_a_repeat() -> None:
    seen = Observed("dispatch", gated({"dedupe_key": "event.payload.n"}))
    for dispatch_id in ("first", "second"):
        keys = {"dedupe": "7"}
        seen.add("event_matched", {**matched(dispatch_id, binding_key=KEY), "keys": keys})
    assert seen.value("deduped_total", trigger_id="triage", reason="dedupe_key") == 1
    assert seen.value("skipped_total", trigger_id="triage", reason="dedupe") == 1


@pytest.mark.parametrize("verdict", ["true", "false", "failed: no"])
def test_verdicts_of_predicates_are_counted(verdict: str) -> None:
    seen = Observed("dispatch", gated({"when": "cel:event.payload.n > 1"}))
    seen.add("event_matched", {**matched("d1", binding_key=KEY), "keys": {"when": verdict}})
    result = verdict.partition(":")[0]
    assert seen.value("predicate_evaluations_total", trigger_id="triage", result=result) == 1


def test_costs_and_exhausted_budgets_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = TriggerMetrics(registry)
    evaluated = {"trigger_id": "a", "result": True, "reason": None, "cost_usd_micros": 2_500}
    exceeded = {"trigger_id": "a", "strategy": "retry_later"}
    notes: list[Any] = [
        Output("triggers.lifecycle", "predicate.evaluated", "", evaluated),
        Output("triggers.lifecycle", "predicate.evaluated", "", evaluated),
        Output("triggers.lifecycle", "predicate.budget_exceeded", "", exceeded),
        Output("triggers.lifecycle", "DispatchParked", "", {"trigger_id": "a"}),
    ]
    metrics.committed(notes, 0)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"harn_trigger_{name}", labels)

    assert value("predicate_cost_usd_total", trigger_id="a") == pytest.approx(0.005)
    assert value("budget_exhausted_total", trigger_id="a", strategy="retry_later") == 1
    assert value("parked_total", trigger_id="a") == 1


def test_what_a_circuit_does_is_counted() -> None:
    seen = Observed("dispatch", gated({"circuit": "dlq"}, max_attempts=1))

    def arrive(dispatch_id: str, outcome: Any = None) -> None:
        seen.add("event_matched", matched(dispatch_id, binding_key=KEY))
        if outcome is not None:
            seen.add("invocation_completed", completed(outcome, dispatch_id))

    def count(action: str) -> float | None:
        labels = {"dimension": "circuit", "action": action}
        return seen.registry.get_sample_value("harn_backpressure_events_total", labels)

    for number in range(FAILURES_MAX):
        arrive(f"f{number}", "failed")
    assert (count("opened"), count("fail_fast"), count("closed")) == (1, 1, None)
    arrive("turned-away")
    assert count("fail_fast") == 2
    seen.log.now_ms += OPEN_MS
    arrive("works", "success")
    assert (count("opened"), count("closed")) == (1, 1)


def test_a_probe_and_a_predicate_s_breaker_are_counted_apart() -> None:
    registry = CollectorRegistry()
    notes: list[Any] = [
        Output("triggers.lifecycle", "CircuitChanged", "", {"destination": to, "state": state})
        for to, state in (("local:call", "half_open"), ("predicate:a@v1", "open"))
    ]
    TriggerMetrics(registry).committed(notes, 0)
    for dimension, action in (("circuit", "half_open_probe"), ("predicate", "opened")):
        labels = {"dimension": dimension, "action": action}
        assert registry.get_sample_value("harn_backpressure_events_total", labels) == 1


def test_trigger_ids_past_the_bound_are_counted_together() -> None:
    label = TriggerLabels()
    first = [label(f"t{number}") for number in range(TRIGGERS_MAX)]
    assert first == [f"t{number}" for number in range(TRIGGERS_MAX)]
    assert label("one-more") == OTHER
    assert label("t0") == "t0"


def test_attempts_past_the_bound_are_counted_together() -> None:
    registry = CollectorRegistry()
    retry = {"trigger_id": "a", "delay_ms": 1, "attempt": 11}
    notes: list[Any] = [
        Output("trigger.attempts", "retry_scheduled", "", {**retry, "attempt": attempt})
        for attempt in (10, 11, 100)
    ]
    TriggerMetrics(registry).committed(notes, 0)
    for attempt, count in (("10", 1), ("over 10", 2)):
        labels = {"trigger_id": "a", "attempt": attempt}
        assert registry.get_sample_value("harn_trigger_retries_total", labels) == count


def test_an_event_with_another_time_than_ours_is_dead_lettered_all_the_same() -> None:
    registry = CollectorRegistry()
    dead: Any = {"trigger_id": "a", "reason": "denied", "event": {"received_at": "long ago"}}
    TriggerMetrics(registry).committed([Output("trigger.dlq", "dlq_moved", "", dead)], 0)
    labels = {"trigger_id": "a", "reason": "denied"}
    assert registry.get_sample_value("harn_trigger_dlq_total", labels) == 1


def test_everything_observed_is_written_by_a_stage() -> None:
    assert set(TOPOLOGY.kinds) >= OBSERVED
    sinks = {topic for stage in TOPOLOGY.stages for topic in (*stage.sinks, stage.quarantine)}
    assert {topic for topic, _ in OBSERVED} <= sinks


def test_nothing_is_noted_unless_somebody_observes() -> None:
    stages = bind(Codec(), lambda _: 1)
    assert not any(sink.observed for stage in stages.values() for sink in stage.sinks.values())
    log = StageLog("inbox")
    log.add("revision_published", revision(1, added=[versioned("a")]))
    log.add("event_ingested", envelope(event("e1")))
    assert [step.notes for step in log.steps] == [(), ()]


# ---------------------------------------------------------------------- partitions
def test_a_partition_s_rows_and_lag_go_with_it() -> None:
    registry = CollectorRegistry()
    metrics = StageMetrics(
        StageCollectors(registry), "dispatch", topic="trigger.dispatches", consumer="harn.dispatch"
    )
    metrics.owned([0, 1])
    for partition, count in ((0, 2), (1, 7)):
        metrics.standing(partition, rows=5, lag=count)
        metrics.keeps(partition, Rows({f"d:{number}": {} for number in range(count)}))

    def lag() -> float | None:
        labels = {"topic": "trigger.dispatches", "consumer": "harn.dispatch"}
        return registry.get_sample_value("harn_event_log_consumer_lag", labels)

    def kept(partition: int) -> float | None:
        labels = {"stage": "dispatch", "partition": str(partition), "prefix": "d"}
        return registry.get_sample_value("harn_stage_rows_kept", labels)

    assert (lag(), kept(0), kept(1)) == (9, 2, 7)
    metrics.owned([1])
    assert (lag(), kept(0), kept(1)) == (7, None, 7)


class Rows(dict[str, Any]):
    """Rows with due times."""

    def counts(self) -> dict[str, int]:
        return dict(Counter(key.partition(":")[0] for key in self))

    def of_prefix(self, prefix: str) -> Iterator[tuple[str, Any]]:
        return (each for each in sorted(self.items()) if each[0].startswith(f"{prefix}:"))


def test_what_is_spent_today_is_the_most_that_a_partition_knows() -> None:
    registry = CollectorRegistry()
    metrics = StageMetrics(StageCollectors(registry), "dispatch")
    metrics.owned([0, 1])

    def spent() -> float | None:
        labels = {"trigger_id": "a"}
        return registry.get_sample_value("harn_trigger_budget_cost_today_usd", labels)

    for partition, micros in ((0, 1_500_000), (1, 2_000_000)):
        row = {"scope": "t:a", "day_micros": micros}
        metrics.keeps(partition, Rows({"m:t:a": row, "m:n:x": {**row, "scope": "n:x"}}))
    assert spent() == 2
    metrics.owned([0])
    assert spent() == 1.5


def test_the_oldest_pending_is_the_oldest_of_all_partitions() -> None:
    registry = CollectorRegistry()
    metrics = StageMetrics(StageCollectors(registry), "dispatch")
    metrics.owned([0, 1])

    def age(trigger_id: str) -> float | None:
        labels = {"trigger_id": trigger_id}
        return registry.get_sample_value("harn_trigger_oldest_pending_age_seconds", labels)

    metrics.pending(0, {"a": 4_000, "b": 9_000}, 10_000)
    metrics.pending(1, {"a": 7_000}, 10_000)
    assert (age("a"), age("b"), age("c")) == (6, 1, None)
    metrics.pending(0, {}, 11_000)
    assert (age("a"), age("b")) == (4, 0)
    metrics.owned([0])
    assert age("a") == 0
