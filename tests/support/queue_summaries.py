"""Summaries of queues for tests, whole and valid, of which a test names only what it is about."""

from __future__ import annotations

from typing import Any, cast

from streams.core.wire import FairnessState, QueueSummary, SchedulerPolicy


def scheduler_policy(**changes: Any) -> SchedulerPolicy:
    value: dict[str, Any] = {
        "strategy": "drr",
        "fairness_key": "tenant",
        "quantum": 1,
        "starvation_age_ms": 300_000,
        "starvation_mode": "job",
        "max_concurrent_per_key": 0,
        "default_weight": 1,
        "weights": {"tenant-b": 1, "tenant-a": 3},
        "max_deliveries": 16,
        "max_waiting": 1_000,
        "worker_ttl_ms": 15_000,
        **changes,
    }
    return cast("SchedulerPolicy", value)


def fairness(key: str, **changes: Any) -> FairnessState:
    value: dict[str, Any] = {
        "fairness_key": key,
        "weight": 1,
        "deficit": 0,
        "in_flight": 0,
        "selected_total": 0,
        "deferred_total": 0,
        "starvation_promotions_total": 0,
        "ready_jobs": 0,
        "oldest_ready_at_ms": None,
        **changes,
    }
    return cast("FairnessState", value)


def summary(queue: str = "triage", **changes: Any) -> QueueSummary:
    value: dict[str, Any] = {
        "queue": queue,
        "shard": None,
        "shards": 1,
        "partition": 0,
        "folded_offset": 1,
        "at_ms": 10_000,
        "ready": 0,
        "delayed": 0,
        "in_flight": 0,
        "acked": 0,
        "purged": 0,
        "dead": 0,
        "oldest_ready_at_ms": None,
        "workers": 0,
        "policy": scheduler_policy(),
        "policy_revision": 1,
        "rounds_completed": 0,
        "starvation_promotions_total": 0,
        "keys": [],
        "other_keys": None,
        "keys_total": 0,
        "relayed": [],
        "request_id": None,
        **changes,
    }
    return cast("QueueSummary", value)
