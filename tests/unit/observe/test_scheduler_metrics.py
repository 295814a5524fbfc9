"""Five families and two of the queue, by the seed's names and labels, bounded."""

from __future__ import annotations

from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest

from streams.core.wire import JobsGranted
from streams.observe.relay_metrics import QUEUES_MAX
from streams.observe.scheduler_metrics import SchedulerMetrics
from tests.support.queue_summaries import fairness, scheduler_policy, summary

FAMILIES = {
    "harn_scheduler_selections_total": "selected_total",
    "harn_scheduler_deferrals_total": "deferred_total",
    "harn_scheduler_starvation_promotions_total": "starvation_promotions_total",
    "harn_scheduler_deficit": "deficit",
}


def metrics() -> tuple[CollectorRegistry, SchedulerMetrics]:
    registry = CollectorRegistry()
    return registry, SchedulerMetrics(registry)


def value(registry: CollectorRegistry, name: str, key: str, queue: str = "triage") -> float | None:
    labels = {"queue": queue, "fairness_dimension": "tenant", "fairness_key": key}
    return registry.get_sample_value(name, labels)


def test_each_key_has_five_series() -> None:
    registry, observed = metrics()
    state = fairness(
        "a",
        selected_total=14,
        deferred_total=3,
        starvation_promotions_total=2,
        deficit=5,
        oldest_ready_at_ms=8_760,
    )
    observed.summarized(summary(keys=[state, fairness("b")], other_keys=fairness("", deficit=9)))
    for name, field in FAMILIES.items():
        assert value(registry, name, "a") == cast("Any", state)[field]
        assert value(registry, name, "b") == 0
    age = "harn_scheduler_oldest_eligible_age_seconds"
    assert value(registry, age, "a") == 1.24
    assert value(registry, age, "b") == 0
    assert value(registry, "harn_scheduler_deficit", "_other") == 9


def test_a_later_summary_replaces_an_earlier_one() -> None:
    registry, observed = metrics()
    for selected in (1, 5):
        observed.summarized(summary(ready=selected, keys=[fairness("a", selected_total=selected)]))
    assert value(registry, "harn_scheduler_selections_total", "a") == 5
    assert registry.get_sample_value("harn_worker_queue_depth", {"queue": "triage"}) == 5


def test_shards_are_counted_together() -> None:
    registry, observed = metrics()
    for shard, age_ms in ((0, 1_000), (1, 3_000)):
        state = fairness("a", selected_total=2, oldest_ready_at_ms=10_000 - age_ms)
        observed.summarized(summary(shard=shard, shards=2, in_flight=1, delayed=1, keys=[state]))
    assert value(registry, "harn_scheduler_selections_total", "a") == 4
    assert value(registry, "harn_scheduler_oldest_eligible_age_seconds", "a") == 3
    assert registry.get_sample_value("harn_worker_queue_depth", {"queue": "triage"}) == 4


def test_a_queue_that_another_member_owns_is_forgotten() -> None:
    registry, observed = metrics()
    observed.summarized(summary("here", partition=1, keys=[fairness("a")]))
    observed.summarized(summary("there", partition=2, keys=[fairness("a")]))
    observed.owned([1])
    assert value(registry, "harn_scheduler_deficit", "a", "here") == 0
    assert value(registry, "harn_scheduler_deficit", "a", "there") is None


def test_queues_past_the_bound_are_one() -> None:
    registry, observed = metrics()
    for number in range(QUEUES_MAX + 10):
        keys = [fairness(f"k{number}", selected_total=1)]
        observed.summarized(summary(f"q{number}", ready=1, keys=keys))
    assert value(registry, "harn_scheduler_selections_total", "_other", "_other") == 10
    assert registry.get_sample_value("harn_worker_queue_depth", {"queue": "_other"}) == 10
    page = generate_latest(registry).decode()
    series = [line for line in page.splitlines() if line.startswith("harn_scheduler_selections")]
    assert len(series) == QUEUES_MAX + 1


def test_the_dimension_is_spelled_as_in_the_environment() -> None:
    registry, observed = metrics()
    policy = scheduler_policy(fairness_key="tenant_and_binding")
    observed.summarized(summary(policy=policy, keys=[fairness("a|b@v1", deficit=2)]))
    labels = {
        "queue": "triage",
        "fairness_dimension": "tenant-and-binding",
        "fairness_key": "a|b@v1",
    }
    assert registry.get_sample_value("harn_scheduler_deficit", labels) == 2


def test_ages_at_claims_are_by_queue_whatever_the_shard() -> None:
    registry, observed = metrics()
    grant: Any = {
        "queue": "triage#1",
        "granted_at_ms": 10_000,
        "jobs": [{"occurred_at_ms": 9_000}, {"occurred_at_ms": 20_000}],
    }
    observed.granted(cast("JobsGranted", grant))
    name = "harn_worker_queue_claim_age_seconds"
    assert registry.get_sample_value(f"{name}_count", {"queue": "triage"}) == 2
    assert registry.get_sample_value(f"{name}_sum", {"queue": "triage"}) == 1
