"""How a queue stands, for the catalog: on request, and a second after something has changed.

It looks at every fairness key, less than a microsecond each, and names those with most work.  So a
queue of more than five thousand keys publishes less often: it costs half a hundredth of the time.

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
from streams.core.scheduler.selection import Selection
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
    named = _busiest(selection, KEYS_MAX)
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


def _busiest(selection: Selection, most: int) -> list[Key]:
    """Return the keys with most work, of equals the lesser names; by name.

    There may be a hundred thousand: each is looked at, but none is compared as a whole.
    """
    keys = selection.keys
    if len(keys) <= most:
        return [keys[name] for name in sorted(keys)]
    works = [key.ready + key.in_flight for key in keys.values()]
    least = heapq.nlargest(most, works)[-1]
    names = [name for name, work in zip(keys, works, strict=True) if work > least]
    equals = [name for name, work in zip(keys, works, strict=True) if work == least]
    names += heapq.nsmallest(most - len(names), equals)
    return [keys[name] for name in sorted(names)]


def _others(queue: Queue, named: list[FairnessState]) -> FairnessState | None:
    """Sum up the keys that are not named, and those that are forgotten."""
    selection = queue.selection
    if len(named) == len(selection.keys) and not any(queue.forgotten):
        return None
    names = {each["fairness_key"] for each in named}
    rest = [key for name, key in selection.keys.items() if name not in names]
    selected, deferred, promotions = queue.forgotten
    heads = [head for key in rest if key.ready and (head := key.oldest()) is not None]
    capped = [key.capped_at for key in rest if key.capped_at is not None]
    funded = [key.weight * (selection.rounds - key.round) for key in rest if key.eligible]
    return {
        "fairness_key": "",
        "weight": 0,
        "deficit": sum([key.credit for key in rest]) + selection.policy["quantum"] * sum(funded),
        "in_flight": sum([key.in_flight for key in rest]),
        "selected_total": selected + sum([key.selected for key in rest]),
        "deferred_total": deferred
        + sum([key.deferred for key in rest])
        + selection.selects * len(capped)
        - sum(capped),
        "starvation_promotions_total": promotions + sum([key.promotions for key in rest]),
        "ready_jobs": sum([key.ready for key in rest]),
        "oldest_ready_at_ms": enqueued_ms(min(heads)) if heads else None,
    }


def _deferred(queue: Queue, key: Key) -> int:
    """Return how often a key was passed over for its cap, this time included."""
    now = 0 if key.capped_at is None else queue.selection.selects - key.capped_at
    return key.deferred + now
