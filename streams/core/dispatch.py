"""Dispatch: every matched event runs to its one terminal outcome.

| kind | dispatch is | answer |
|---|---|---|
| `event_matched` | unknown | attempt 1 is invoked, once predicate, gates and circuit let it |
| any word on attempt 0 | evaluating | see `streams.core.dispatch_predicate` |
| `invocations_running` | invoked or running, same fence | running; its lease starts or is renewed |
| `invocation_completed` success | invoked or running, same fence | ended: succeeded |
| … failed, timeout | same | next attempt invoked or waiting; ended in the DLQ when none is left |
| … denied, cancelled, result_too_large | same | ended in the DLQ |
| … interrupted, unresolved | same | the same attempt is invoked again, at once or after a delay |
| any word under an old fence, or after the end | any | refused, on the record |
| due | running | lease lost: the same attempt under the next fence |
| due | waiting, returned | the attempt is invoked |
| due | parked | ended in the DLQ: `circuit_open` |
| `circuit_changed` | any | see `streams.core.circuit` |
| `dispatch_cancel_requested` | any | see `streams.core.cancel` |
| `dlq_replayed`, `dlq_discard_requested` | any | see `streams.core.dlq` |

Invariants: fences only grow; one terminal record per dispatch; attempts are numbered without gap; a
row exists exactly while its dispatch is live.

Source: seed trigger-dispatcher; SEMANTICS 2.3, 2.4, 2.7-2.10; DESIGN "An invocation".
"""

from __future__ import annotations

from collections.abc import Callable

from streams.core import (
    action_graph,
    binding_drain,
    breaker,
    budget,
    cancel,
    circuit_turns,
    dispatch_due,
    dispatch_start,
    dispatch_words,
    dlq,
)
from streams.core.dispatch_index import build_index
from streams.core.record import Record, Rejection
from streams.core.state import Answer, Fold, State

_HANDLERS: dict[str, Callable[[State, Record], Answer]] = {
    "event_matched": dispatch_start.on_event_matched,
    "invocations_running": dispatch_words.on_invocations_running,
    "invocation_completed": dispatch_words.on_invocation_completed,
    "dispatch_cancel_requested": cancel.on_cancel_requested,
    "breaker_opened": breaker.on_breaker_opened,
    "budget_spent": budget.on_budget_spent,
    "circuit_changed": circuit_turns.on_circuit_changed,
    "dlq_replayed": dlq.on_replayed,
    "dlq_discard_requested": dlq.on_discard_requested,
    "revision_published": binding_drain.on_revision_published,
    "revision_reached": binding_drain.on_revision_reached,
}


def _on_record(state: State, record: Record, /) -> Answer:
    handler = _HANDLERS.get(record.kind)
    if handler is None:
        return Rejection("DSP-003", f"dispatch has no use for kind {record.kind!r}")
    return handler(state, record)


FOLD = Fold(
    on_record=action_graph.drawn(_on_record),
    on_due=action_graph.drawn_due(dispatch_due.on_due),
    build_index=build_index,
)
