"""How a queue stands, for the catalog: on request, and a second after something has changed.

It looks at every fairness key, some microseconds each, and names those with most work.  So a queue
of more than five thousand keys publishes less often: it costs a hundredth of the time, or less.

Source: SEMANTICS 6.7; DESIGN decision A5.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
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
    keys = selection.keys.values()
    named = heapq.nsmallest(KEYS_MAX, keys, lambda key: (-key.ready - key.in_flight, key.name))
    named.sort(key=lambda key: key.name)
    states = [_state_of(queue, key) for key in named]
    others = _others(queue, states)
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
        "oldest_ready_at_ms": _earliest(states if others is None else [*states, others]),
        "workers": len(queue.workers),
        "policy": selection.policy,
        "policy_revision": book.revision,
        "rounds_completed": selection.rounds,
        "starvation_promotions_total": selection.promotions,
        "keys": states,
        "other_keys": others,
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
    return {
        "fairness_key": key.name,
        "weight": key.weight,
        "deficit": selection.credit_of(key),
        "in_flight": key.in_flight,
        "selected_total": key.selected,
        "deferred_total": _deferred(queue, key),
        "starvation_promotions_total": key.promotions,
        "ready_jobs": key.ready,
        "oldest_ready_at_ms": None if oldest is None else enqueued_ms(oldest),
    }


def _earliest(states: Iterable[FairnessState]) -> int | None:
    """Return since when the oldest ready job of these keys waits, ms."""
    ages = [each["oldest_ready_at_ms"] for each in states]
    return min((each for each in ages if each is not None), default=None)


def _others(queue: Queue, named: list[FairnessState]) -> FairnessState | None:
    """Sum up the keys that are not named, and those that are forgotten."""
    selection = queue.selection
    if len(named) == len(selection.keys) and not any(queue.forgotten):
        return None
    names = {each["fairness_key"] for each in named}
    rest = [key for name, key in selection.keys.items() if name not in names]
    selected, deferred, promotions = queue.forgotten
    deficit = in_flight = ready = 0
    oldest: int | None = None
    for key in rest:
        head = key.oldest() if key.ready else None
        if head is not None and (oldest is None or head < oldest):
            oldest = head
        deficit += selection.credit_of(key)
        in_flight += key.in_flight
        ready += key.ready
        selected += key.selected
        deferred += _deferred(queue, key)
        promotions += key.promotions
    return {
        "fairness_key": "",
        "weight": 0,
        "deficit": deficit,
        "in_flight": in_flight,
        "selected_total": selected,
        "deferred_total": deferred,
        "starvation_promotions_total": promotions,
        "ready_jobs": ready,
        "oldest_ready_at_ms": None if oldest is None else enqueued_ms(oldest),
    }


def _deferred(queue: Queue, key: Key) -> int:
    """Return how often a key was passed over for its cap, this time included."""
    now = 0 if key.capped_at is None else queue.selection.selects - key.capped_at
    return key.deferred + now
