"""How a queue stands, for the catalog: on request, and a second after something has changed.

Source: SEMANTICS 6.7; DESIGN decision A5.
"""

from __future__ import annotations

import heapq
from typing import Final

from streams.core.record import Output, Record
from streams.core.scheduler.book import Book, Queue
from streams.core.scheduler.job_id import enqueued_ms
from streams.core.scheduler.key import Key
from streams.core.state import State
from streams.core.wire import FairnessState, QueueSummary

QUEUES: Final = "worker.queues"

KEYS_MAX: Final = 200
"""Fairness keys that a summary names; the others are summed up."""


def summary(
    state: State, book: Book, queue: Queue, record: Record, request_id: str | None, /
) -> Output:
    """Return the queue's summary; the timer of the next one is disarmed."""
    queue.summary_at_ms, queue.summary_due_ms = state.now_ms, None
    selection = queue.selection
    named = heapq.nsmallest(
        KEYS_MAX, selection.keys.values(), lambda key: (-key.ready - key.in_flight, key.name)
    )
    named.sort(key=lambda key: key.name)
    states = [_state_of(queue, key) for key in named]
    oldest = [each for key in selection.keys.values() if (each := key.oldest()) is not None]
    value: QueueSummary = {
        "queue": queue.queue,
        "shard": queue.shard,
        "shards": queue.shards,
        "partition": state.partition,
        "folded_offset": record.offset,
        "at_ms": state.now_ms,
        "ready": selection.ready,
        "delayed": queue.delayed,
        "in_flight": len(queue.held),
        "acked": queue.acked,
        "purged": queue.purged,
        "dead": queue.dead,
        "oldest_ready_at_ms": enqueued_ms(min(oldest)) if oldest else None,
        "workers": len(queue.workers),
        "policy": selection.policy,
        "policy_revision": book.revision,
        "rounds_completed": selection.rounds,
        "starvation_promotions_total": selection.promotions,
        "keys": states,
        "other_keys": _others(queue, states),
        "keys_total": len(selection.keys),
        "relayed": [
            {"source_partition": partition, "next_offset": offset}
            for partition, offset in sorted(queue.relayed.items())
        ],
        "request_id": request_id,
    }
    return Output(QUEUES, "queue_summary", f"summary:{queue.home}", value)


def _state_of(queue: Queue, key: Key) -> FairnessState:
    selection, oldest = queue.selection, key.oldest()
    deferred = 0 if key.capped_at is None else selection.selects - key.capped_at
    return {
        "fairness_key": key.name,
        "weight": key.weight,
        "deficit": selection.credit_of(key),
        "in_flight": key.in_flight,
        "selected_total": key.selected,
        "deferred_total": key.deferred + deferred,
        "starvation_promotions_total": key.promotions,
        "ready_jobs": key.ready,
        "oldest_ready_at_ms": None if oldest is None else enqueued_ms(oldest),
    }


def _others(queue: Queue, named: list[FairnessState]) -> FairnessState | None:
    """Sum up the keys that are not named, and those that are forgotten."""
    selection = queue.selection
    selected, deferred, promotions = queue.forgotten
    if len(named) == len(selection.keys) and not any(queue.forgotten):
        return None
    names = {each["fairness_key"] for each in named}
    rest = [_state_of(queue, key) for name, key in selection.keys.items() if name not in names]
    ages = [each["oldest_ready_at_ms"] for each in rest if each["oldest_ready_at_ms"] is not None]
    return {
        "fairness_key": "",
        "weight": 0,
        "deficit": sum(each["deficit"] for each in rest),
        "in_flight": sum(each["in_flight"] for each in rest),
        "selected_total": selected + sum(each["selected_total"] for each in rest),
        "deferred_total": deferred + sum(each["deferred_total"] for each in rest),
        "starvation_promotions_total": promotions
        + sum(each["starvation_promotions_total"] for each in rest),
        "ready_jobs": sum(each["ready_jobs"] for each in rest),
        "oldest_ready_at_ms": min(ages, default=None),
    }
