"""What time brings to a dispatch: its retry, its gate, the end of a lease.

Source: SEMANTICS 2.4; DESIGN law 2, "An invocation".
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import circuit_turns, claims, dispatch_predicate, dlq
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_moves import (
    advance,
    dead_letter,
    dispatch_of,
    end_cancelled,
    follow,
    invoke_again,
    reenter,
)
from streams.core.dispatch_records import invocation_lost
from streams.core.gate import admission
from streams.core.record import Output, Record
from streams.core.state import State
from streams.core.wire import (
    RowBudget,
    RowCancel,
    RowCircuit,
    RowClaim,
    RowDispatch,
    RowDlq,
    RowWindow,
)

LOSSES_MAX = 16
"""Leases that a dispatch may lose: an event that kills its invoker must not do so for ever."""


def on_due(
    state: State,
    key: str,
    row: RowDispatch | RowWindow | RowCancel | RowCircuit | RowClaim | RowBudget | RowDlq,
    _record: Record,
    /,
) -> Iterable[Output]:
    """Answer a row whose due time has come."""
    if "status" in row:
        return _dispatch_due(state, row)
    if "episodes" in row:
        return circuit_turns.on_circuit_due(state, row)
    if "history" in row:
        return dlq.on_due(state, key, row)
    if "dedupe_key" in row:
        return claims.expired(state, key, row)
    state.rows.delete(key)  # what merely expires: a window, a cancel request, a budget's day
    return ()


def _dispatch_due(state: State, row: RowDispatch) -> Iterable[Output]:
    match row["status"]:
        case "gated":
            return _gate_due(state, row)
        case "running":
            return _lease_lost(state, row)
        case "waiting":
            return reenter(state, row)
        case "returned":
            return (invoke_again(state, row),)
        case "deferred":
            return dispatch_predicate.begin(state, row)
        case "parked":
            return circuit_turns.on_parked_too_long(state, row)
        case status:
            message = f"a dispatch that is {status} has no due time"
            raise AssertionError(message)


def _gate_due(state: State, row: RowDispatch) -> Iterable[Output]:
    index: DispatchIndex = state.index
    verdict = admission.due(state, index.slots, index.flow(row["binding_key"]), row)
    outputs: list[Output] = []
    further = follow(state, row, verdict, outputs)
    if further is not None:
        outputs += advance(state, further, row["gate"])
    return outputs


def _lease_lost(state: State, row: RowDispatch) -> Iterable[Output]:
    losses = row["losses"] + 1
    lost = invocation_lost(dispatch_of(state, row), losses)
    if row["cancelled"] is not None:
        return (lost, *end_cancelled(state, row, row["cancelled"]))
    if losses > LOSSES_MAX:
        error = f"{losses} invokers were lost while they ran it"
        return (lost, *dead_letter(state, row, error, "invoker_lost", "invoker_lost"))
    again: RowDispatch = {**row, "fence": row["fence"] + 1, "losses": losses}
    return (lost, invoke_again(state, again))
