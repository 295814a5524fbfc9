"""The documents of `queue ls`: the seed's own shape, from summaries."""

from __future__ import annotations

import pytest

from streams.core.queue_report import fairness_document, policy_document, summary_document
from tests.support.queue_summaries import fairness, scheduler_policy, summary


def test_the_policy_is_spelled_as_the_seed_has_it() -> None:
    assert policy_document(scheduler_policy()) == {
        "strategy": {
            "kind": "deficit-round-robin",
            "quantum": 1,
            "starvation_age_ms": 300_000,
            "starvation_mode": "job",
        },
        "fairness_key": "tenant",
        "weights": {"tenant-a": 3, "tenant-b": 1},
        "default_weight": 1,
        "max_concurrent_per_key": 0,
    }
    assert policy_document(scheduler_policy(strategy="fifo"))["strategy"] == {"kind": "fifo"}


@pytest.mark.parametrize(
    ("field", "spelled"),
    [("trigger_id", "trigger-id"), ("tenant_and_binding", "tenant-and-binding")],
)
def test_fairness_keys_are_in_kebab_case(field: str, spelled: str) -> None:
    assert policy_document(scheduler_policy(fairness_key=field))["fairness_key"] == spelled


def test_an_age_of_nothing_promotes_nothing() -> None:
    found = policy_document(scheduler_policy(starvation_age_ms=0))
    assert found["strategy"]["starvation_age_ms"] is None


def test_fairness_of_a_queue_has_the_fields_of_the_seed() -> None:
    state = fairness(
        "tenant-a",
        weight=3,
        deficit=2,
        in_flight=1,
        selected_total=14,
        ready_jobs=6,
        oldest_ready_at_ms=8_760,
    )
    found = summary(
        keys=[state, fairness("tenant-b", selected_total=4)],
        other_keys=fairness("", weight=0, selected_total=9),
        rounds_completed=7,
    )
    assert fairness_document(found) == {
        "queue": "triage",
        "strategy": "drr",
        "fairness_key": "tenant",
        "rounds_completed": 7,
        "starvation_promotions_total": 0,
        "keys": [
            {
                "fairness_key": "tenant-a",
                "weight": 3,
                "deficit": 2,
                "in_flight": 1,
                "selected_total": 14,
                "deferred_total": 0,
                "ready_jobs": 6,
                "oldest_ready_age_ms": 1_240,
            },
            {
                "fairness_key": "tenant-b",
                "weight": 1,
                "deficit": 0,
                "in_flight": 0,
                "selected_total": 4,
                "deferred_total": 0,
                "ready_jobs": 0,
                "oldest_ready_age_ms": 0,
            },
            {
                "fairness_key": "_other",
                "weight": 0,
                "deficit": 0,
                "in_flight": 0,
                "selected_total": 9,
                "deferred_total": 0,
                "ready_jobs": 0,
                "oldest_ready_age_ms": 0,
            },
        ],
    }


def test_a_queue_of_shards_is_counted_as_one() -> None:
    shards = (
        summary(shard=0, ready=2, in_flight=1, acked=3, at_ms=100, oldest_ready_at_ms=90),
        summary(shard=1, ready=1, purged=4, dead=1, delayed=2, at_ms=90, oldest_ready_at_ms=50),
    )
    assert summary_document("triage", shards, 5) == {
        "queue": "triage",
        "ready": 3,
        "in_flight": 1,
        "acked": 3,
        "purged": 4,
        "responses": 5,
        "oldest_unclaimed_age_ms": 40,
        "delayed": 2,
        "dead": 1,
        "workers": 0,
    }


def test_a_queue_that_nobody_has_made_is_all_zeros() -> None:
    found = summary_document("nowhere", (), 0)
    assert found["oldest_unclaimed_age_ms"] is None
    assert {found[each] for each in ("ready", "in_flight", "acked", "purged", "responses")} == {0}
