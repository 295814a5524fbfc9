"""Cancelling: an operator's word ends a dispatch, wherever it is on its way.

| the dispatch | answer |
|---|---|
| has not come | the request waits for it, `cancel_ttl_ms` at most |
| comes while a request waits | ended: cancelled, before its first attempt |
| waits: at a gate, for a retry, to be issued again | ended: cancelled, its slots are free |
| is at an invoker | marked; `cancel_invocation` goes to every invoker |
| marked, and its invoker says anything of it, or is lost | ended: cancelled |
| marked already | nothing: a repeat |

A request is copied into every dispatch partition, and names binding and event: a replay, whose
event has an id of its own, is cancelled by that id and not by its original's.

Invariants: a marked dispatch is never invoked again; at most REQUESTS_MAX requests wait in a
partition, the oldest are forgotten first.

Source: SEMANTICS 2.5; DESIGN 3 (`trigger.cancel.requests`), 7 (a member's shutdown).
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import bounds, revision
from streams.core.cancel_records import cancel_invocation
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_moves import dispatch_of, end_cancelled, row_key
from streams.core.dispatch_records import (
    attempt_failed,
    attempt_finished,
)
from streams.core.gate import admission
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, State
from streams.core.wire import (
    AttemptEntry,
    DispatchCancelRequested,
    InvocationCompleted,
    RowCancel,
    RowDispatch,
)

REQUESTS_MAX = 10_000
"""Requests that wait in one partition for a dispatch to come."""

_REASON_CHARS_MAX = 500
"""It becomes the error of an attempt, of which a hundred must fit beside an event."""

_AT_INVOKER = frozenset({"evaluating", "invoked", "running"})


def on_cancel_requested(state: State, record: Record, /) -> Answer:
    """Cancel the dispatch that the request names, or keep the request until it comes."""
    request: DispatchCancelRequested = record.value
    problem = bounds.text_problem(
        (
            ("binding_key", request["binding_key"], bounds.ID_CHARS_MAX),
            ("event_id", request["event_id"], bounds.ID_CHARS_MAX),
            ("requested_by", request["requested_by"], bounds.ID_CHARS_MAX),
            ("audit_id", request["audit_id"], bounds.ID_CHARS_MAX),
        )
    )
    if problem is not None:
        return Rejection("DSP-006", problem)
    index: DispatchIndex = state.index
    live = index.live_of(state, request["binding_key"], request["event_id"])
    if not live:
        _keep(state, request)
        return ()
    outputs: list[Output] = []
    for dispatch_id in live:
        row: RowDispatch | None = state.rows.get(row_key(dispatch_id))
        assert row is not None, "an indexed dispatch is live"
        outputs += _cancel(state, row, _reason(request))
    return outputs


def _reason(request: DispatchCancelRequested) -> str:
    by = request["requested_by"] or "unknown"
    audit = f" ({request['audit_id']})" if request["audit_id"] else ""
    return f"cancelled: {by} asked for it{audit}"[:_REASON_CHARS_MAX]


def _cancel(state: State, row: RowDispatch, reason: str) -> Iterable[Output]:
    if row["cancelled"] is not None:
        return ()
    if row["status"] in _AT_INVOKER:
        marked: RowDispatch = {**row, "cancelled": reason}
        state.rows.put(row_key(row["dispatch_id"]), marked)
        return (cancel_invocation(marked, reason, state.partition),)
    if row["status"] == "gated":
        index: DispatchIndex = state.index
        admission.withdraw(state, index.slots, row)
    return end_cancelled(state, row, reason)


# ---------------------------------------------------------------------- requests that wait
def _request_key(binding_key: str, event_id: str) -> str:
    """Key of a waiting request's row; the length tells where the binding's key ends."""
    return f"c:{len(binding_key)}:{binding_key}:{event_id}"


def _keep(state: State, request: DispatchCancelRequested) -> None:
    key = _request_key(request["binding_key"], request["event_id"])
    state.rows.delete(key)  # an earlier one
    if state.rows.count("c") >= REQUESTS_MAX:
        oldest = state.rows.oldest("c")
        assert oldest is not None, "a counted row has a timer"
        state.rows.delete(oldest)
    row: RowCancel = {
        "binding_key": request["binding_key"],
        "event_id": request["event_id"],
        "reason": _reason(request),
        "expires_at_ms": state.now_ms + revision.policy_in_force(state)["cancel_ttl_ms"],
    }
    state.rows.put(key, row)


def requested_before(state: State, row: RowDispatch, /) -> str | None:
    """Return why a dispatch that has just come is cancelled; the request is used up."""
    if not state.rows.count("c"):
        return None
    key = _request_key(row["binding_key"], row["event_id"])
    request: RowCancel | None = state.rows.get(key)
    if request is None:
        return None
    state.rows.delete(key)
    # Time has come for it already: rows that merely expire are removed a few at a time.
    return request["reason"] if request["expires_at_ms"] > state.now_ms else None


# ---------------------------------------------------------------------- a marked dispatch
def on_word(state: State, row: RowDispatch, word: InvocationCompleted, /) -> Iterable[Output]:
    """End a marked dispatch: its invoker has let go of it, whatever came of the attempt."""
    reason = row["cancelled"]
    assert reason is not None, "the dispatch is marked"
    if row["attempt"] == 0:  # a predicate's: no attempt was made
        return end_cancelled(state, row, reason)
    entry: AttemptEntry = {
        "attempt": row["attempt"],
        "outcome": "cancelled",
        "error": reason,
        "started_at_ms": word["started_at_ms"],
        "completed_at_ms": word["completed_at_ms"],
    }
    ended: RowDispatch = {**row, "attempts": [*row["attempts"], entry]}
    dispatch = dispatch_of(state, ended)
    said = (attempt_finished(dispatch, entry), *attempt_failed(dispatch, reason))
    return (*said, *end_cancelled(state, ended, reason))


def on_taken(state: State, row: RowDispatch, invoker_id: str, /) -> Iterable[Output]:
    """Repeat the intent for an invoker that took a marked attempt later than the request came."""
    reason = row["cancelled"]
    if reason is None or row["invoker_id"] == invoker_id:
        return ()
    return (cancel_invocation(row, reason, state.partition),)
