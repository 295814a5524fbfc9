"""How queues stand, as documents: what `harn orchestrator queue ls --json` prints of the scheduler.

Source: seed worker-dispatch, "Inspecting fairness state"; SEMANTICS 5.2, 6.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streams.core.shards import mailbox_key
from streams.core.wire import FairnessState, QueueSummary, SchedulerPolicy

__all__ = [
    "OTHER_KEYS",
    "fairness_document",
    "policy_document",
    "summary_document",
]

OTHER_KEYS = "_other"
"""Stands for the fairness keys that a summary has no room for, taken together."""


def summary_document(queue: str, shards: Sequence[QueueSummary], responses: int) -> dict[str, Any]:
    """Return a queue's counts, over all its shards."""
    ages = [
        max(0, each["at_ms"] - each["oldest_ready_at_ms"])
        for each in shards
        if each["oldest_ready_at_ms"] is not None
    ]
    return {
        "queue": queue,
        "ready": sum(each["ready"] for each in shards),
        "in_flight": sum(each["in_flight"] for each in shards),
        "acked": sum(each["acked"] for each in shards),
        "purged": sum(each["purged"] for each in shards),
        "responses": responses,
        "oldest_unclaimed_age_ms": max(ages, default=None),
        "delayed": sum(each["delayed"] for each in shards),
        "dead": sum(each["dead"] for each in shards),
        "workers": max((each["workers"] for each in shards), default=0),
    }


def policy_document(policy: SchedulerPolicy) -> dict[str, Any]:
    """Return a policy as the seed spells it, and what is ours besides."""
    strategy: dict[str, Any] = {"kind": "fifo"}
    if policy["strategy"] == "drr":
        strategy = {
            "kind": "deficit-round-robin",
            "quantum": policy["quantum"],
            "starvation_age_ms": policy["starvation_age_ms"] or None,
            "starvation_mode": policy["starvation_mode"],
        }
    return {
        "strategy": strategy,
        "fairness_key": _kebab(policy["fairness_key"]),
        "weights": dict(sorted(policy["weights"].items())),
        "default_weight": policy["default_weight"],
        "max_concurrent_per_key": policy["max_concurrent_per_key"],
    }


def fairness_document(summary: QueueSummary) -> dict[str, Any]:
    """Return how the fairness keys of a queue, or of a shard, stand."""
    policy = summary["policy"]
    keys = [_key_document(each["fairness_key"], each, summary) for each in summary["keys"]]
    others = summary["other_keys"]
    if others is not None:
        keys.append(_key_document(OTHER_KEYS, others, summary))
    return {
        "queue": mailbox_key(summary["queue"], summary["shard"]),
        "strategy": policy["strategy"],
        "fairness_key": _kebab(policy["fairness_key"]),
        "rounds_completed": summary["rounds_completed"],
        "starvation_promotions_total": summary["starvation_promotions_total"],
        "keys": keys,
    }


def _key_document(name: str, state: FairnessState, summary: QueueSummary) -> dict[str, Any]:
    oldest_ms = state["oldest_ready_at_ms"]
    return {
        "fairness_key": name,
        "weight": state["weight"],
        "deficit": state["deficit"],
        "in_flight": state["in_flight"],
        "selected_total": state["selected_total"],
        "deferred_total": state["deferred_total"],
        "ready_jobs": state["ready_jobs"],
        "oldest_ready_age_ms": 0 if oldest_ms is None else max(0, summary["at_ms"] - oldest_ms),
    }


def _kebab(name: str) -> str:
    return name.replace("_", "-")
