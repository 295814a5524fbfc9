"""How a dispatch begins: a matched event becomes a live row, and meets predicate and gates.

Source: SEMANTICS 2.3; DESIGN "An event".
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import bounds, cancel, claims, dispatch_predicate
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_moves import (
    advance,
    dead_letter,
    dispatch_of,
    end_cancelled,
    event_key,
    row_key,
    skip,
)
from streams.core.dispatch_records import (
    attempt_started,
    invoke,
    predicate_evaluated,
)
from streams.core.dlq_words import entry_problem
from streams.core.event_json import batch_bytes, is_small
from streams.core.flow import Flow
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, State
from streams.core.wire import EventMatched, RowDispatch, RowEvent, TriggerEvent


def on_event_matched(state: State, record: Record, /) -> Answer:
    """Take an event that the inbox matched to a binding."""
    matched: EventMatched = record.value
    index: DispatchIndex = state.index
    binding = index.bindings.get(matched["binding_key"])
    dispatch_id = matched["dispatch_id"]
    if binding is None:
        return Rejection(
            "DSP-001", f"binding {matched['binding_key']} is not in force in this partition"
        )
    if state.rows.get(row_key(dispatch_id)) is not None:
        return Rejection("DSP-002", f"dispatch {dispatch_id} is live already")
    event = matched["event"]
    problem = (
        bounds.event_problem(event)
        or bounds.text_problem(_ids_of(matched))
        or entry_problem(matched["dlq_entry_id"], matched["replay_of_event_id"], state.partitions)
    )
    if problem is not None or matched["trigger_id"] != binding["trigger_id"]:
        return Rejection("DSP-005", problem or "the trigger is not the binding's")
    row = _new_row(matched, record)  # stored by whatever lets it live on: once, as it is then
    if row["event"] is None:
        body: RowEvent = {"event": event}
        state.rows.put(event_key(dispatch_id), body)
    index.opened(matched["binding_key"])
    index.entered(row)
    reason = cancel.requested_before(state, row)
    if reason is not None:
        return end_cancelled(state, row, reason)
    if "error" in matched["keys"]:
        error = bounds.shortened(matched["keys"]["error"])
        return dead_letter(state, row, error, "unknown", "expression_failed")
    flow = index.flow(matched["binding_key"])
    if claims.KEY in matched["keys"]:
        return _first_only(state, row, flow, event, matched["keys"][claims.KEY])
    return _before_gates(state, row, flow, event)


def _first_only(
    state: State, row: RowDispatch, flow: Flow, event: TriggerEvent, value: str
) -> Iterable[Output]:
    """Let a dispatch go on if no earlier one has its value of `dedupe_key`."""
    first = claims.holder(state, row, value)
    if first is not None:
        claims.refused(state)
        detail = {"dedupe_key": value, "first_event_id": first["event_id"]}
        return skip(state, row, "dedupe", detail)
    claimed = claims.claim(state, row, value, flow.retention_ms)
    return (*claimed, *_before_gates(state, row, flow, event))


def _before_gates(
    state: State, row: RowDispatch, flow: Flow, event: TriggerEvent
) -> Iterable[Output]:
    """Ask predicate and budget, and take a dispatch to its gates."""
    index: DispatchIndex = state.index
    dispatch = dispatch_of(state, row)
    evaluated: tuple[Output, ...] = ()
    if flow.when is not None:
        verdict = row["keys"].get("when", "false")
        evaluated = (predicate_evaluated(dispatch, flow.when, verdict),)
        if verdict != "true":
            detail = {"predicate": flow.when, "reason": verdict}
            return (*evaluated, *skip(state, row, "predicate", detail))
    if flow.direct and not index.circuits:
        state.rows.put(row_key(row["dispatch_id"]), row)
        intent = invoke(dispatch, event, state.partition, flow.timeout_ms)
        return (*evaluated, *attempt_started(dispatch), intent)
    if flow.priority or flow.batch is not None:
        size = batch_bytes(event) if flow.batch is not None else 0
        row = {**row, "rank": flow.rank(row["keys"]), "body_bytes": size}
    if flow.function is not None or flow.spend is not None:
        return (*evaluated, *dispatch_predicate.begin(state, row))
    return (*evaluated, *advance(state, row, None))


def _new_row(matched: EventMatched, record: Record) -> RowDispatch:
    event = matched["event"]
    return {
        "dispatch_id": matched["dispatch_id"],
        "trigger_id": matched["trigger_id"],
        "binding_key": matched["binding_key"],
        "event_id": event["id"],
        "replay_of_event_id": matched["replay_of_event_id"],
        "tenant_id": event["tenant_id"],
        "traceparent": bounds.traceparent(record.headers),
        "status": "invoked",
        "attempt": 1,
        "fence": 1,
        "due_ms": None,
        "invoker_id": None,
        "losses": 0,
        "returns": 0,
        "accepted_at_ms": matched["accepted_at_ms"],
        "attempts": [],
        "keys": matched["keys"],
        "arrival": record.offset,
        "rank": 0,
        "gate": None,
        "holds": [],
        "since_ms": 0,
        "body_bytes": 0,
        "members": [],
        "cancelled": None,
        "reserved_micros": 0,
        "deferrals": 0,
        "dlq_entry_id": matched["dlq_entry_id"],
        "trace_id": event["trace_id"],
        "event": event if is_small(event) else None,
    }


def _ids_of(matched: EventMatched) -> Iterable[tuple[str, str | None, int]]:
    """Name the texts of a matched event that every record about it repeats."""
    replay_of = matched["replay_of_event_id"]
    return (
        ("dispatch_id", matched["dispatch_id"], bounds.ID_CHARS_MAX),
        ("replay_of_event_id", replay_of, bounds.ID_CHARS_MAX),
        ("dlq_entry_id", matched["dlq_entry_id"], 2 * bounds.ID_CHARS_MAX),
    )
