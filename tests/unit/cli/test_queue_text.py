"""`queue ls` as text: exactly these lines."""

from __future__ import annotations

from streams.cli.queue_text import lines_of_listing
from streams.core.queue_report import fairness_document, policy_document, summary_document
from tests.support.queue_summaries import fairness, scheduler_policy, summary

DISPATCHER = {
    "dispatcher_in_flight": 1,
    "dispatcher_retry_queue_depth": 1,
    "inferred_in_flight": 1,
    "inferred_pending_retries": 1,
    "inbox_claims_written": 0,
    "inbox_envelopes_written": 12,
    "inbox_duplicates_rejected": 3,
    "inbox_active_entries": 9,
    "in_flight_dispatches": ["issues@v1:e1:1"],
    "pending_retries": ["issues@v1:e2:2"],
    "stranded_envelopes": [
        {
            "inbox_offset": 11,
            "event_id": "e9",
            "trigger_id": None,
            "binding_version": None,
            "provider": "github",
            "kind": "issues.opened",
            "received_at": "2026-01-01T00:00:00.000Z",
            "age_ms": 2_500,
        }
    ],
}


def test_every_line_of_a_listing() -> None:
    busy = summary(
        ready=6,
        in_flight=1,
        acked=13,
        oldest_ready_at_ms=8_760,
        rounds_completed=7,
        starvation_promotions_total=2,
        keys=[
            fairness(
                "tenant-a",
                weight=3,
                deficit=2,
                in_flight=1,
                selected_total=14,
                ready_jobs=6,
                oldest_ready_at_ms=8_760,
            ),
            fairness("tenant-b", selected_total=4, deferred_total=1),
        ],
    )
    idle = summary("bulk", delayed=2, dead=1)
    document = {
        "dispatcher": DISPATCHER,
        "worker_queues": [
            summary_document("bulk", (idle,), 0),
            summary_document("triage", (busy,), 13),
        ],
        "scheduler": {
            "policy": policy_document(scheduler_policy()),
            "per_queue": [fairness_document(busy)],
        },
    }
    assert list(lines_of_listing(document)) == [
        (
            "dispatcher dispatcher_in_flight=1 dispatcher_retry_queue_depth=1 inferred_in_flight=1 "
            "inferred_pending_retries=1 inbox_claims_written=0 inbox_envelopes_written=12 "
            "inbox_duplicates_rejected=3 inbox_active_entries=9"
        ),
        (
            "queue bulk ready=0 in_flight=0 acked=0 purged=0 responses=0 oldest_unclaimed_age=- "
            "delayed=2 dead=1"
        ),
        (
            "queue triage ready=6 in_flight=1 acked=13 purged=0 responses=13 "
            "oldest_unclaimed_age=1.240s"
        ),
        "in flight issues@v1:e1:1",
        "pending retry issues@v1:e2:2",
        (
            "stranded envelope inbox_offset=11 event_id=e9 trigger_id=- provider=github "
            "kind=issues.opened age=2.500s"
        ),
        (
            "scheduler strategy=deficit-round-robin fairness_key=tenant quantum=1 "
            "starvation_age=300.000s starvation_mode=job max_concurrent_per_key=0 default_weight=1 "
            "weights=tenant-a:3,tenant-b:1"
        ),
        "scheduler queue triage strategy=drr fairness_key=tenant rounds=7 starvation_promotions=2",
        (
            "  tenant-a weight=3 ready=6 in_flight=1 deficit=2 selected=14 deferred=0 "
            "oldest_eligible=1.240s"
        ),
        "  tenant-b weight=1 ready=0 in_flight=0 deficit=0 selected=4 deferred=1 oldest_eligible=-",
    ]


def test_fifo_has_no_words_about_rounds() -> None:
    document = {
        "dispatcher": {
            **DISPATCHER,
            "dispatcher_in_flight": 0,
            "dispatcher_retry_queue_depth": 0,
            "in_flight_dispatches": [],
            "pending_retries": [],
            "stranded_envelopes": [],
        },
        "worker_queues": [],
        "scheduler": {
            "policy": policy_document(scheduler_policy(strategy="fifo", weights={})),
            "per_queue": [],
        },
    }
    assert list(lines_of_listing(document))[1:] == [
        (
            "scheduler strategy=fifo fairness_key=tenant max_concurrent_per_key=0 default_weight=1 "
            "weights=-"
        )
    ]


def test_dispatches_that_have_no_name_in_the_listing_are_counted() -> None:
    many = {**DISPATCHER, "dispatcher_in_flight": 1_203, "dispatcher_retry_queue_depth": 1}
    scheduler = {"policy": policy_document(scheduler_policy()), "per_queue": []}
    lines = list(
        lines_of_listing({"dispatcher": many, "worker_queues": [], "scheduler": scheduler})
    )
    assert lines[1:4] == [
        "in flight issues@v1:e1:1",
        "in flight: 1202 more",
        "pending retry issues@v1:e2:2",
    ]
