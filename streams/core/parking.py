"""Holding dispatches back from a destination whose circuit is open.

| binding says | the circuit is open | it is probed, nobody knows yet |
|---|---|---|
| `circuit = "park"` | the dispatch parks | the dispatch parks |
| `circuit = "dlq"` | the DLQ, at once | the dispatch goes on |
| `circuit = "off"` | the dispatch goes on | the dispatch goes on |

A parked dispatch holds no slot, counts against no budget and no gate, and ends undelivered when it
is still parked after `circuit_max_park`.

Source: SEMANTICS 2.13; DESIGN 7, A12/A13.
"""

from __future__ import annotations

from streams.core import circuit
from streams.core.destination import destination_of, parked_key
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_records import LIFECYCLE, Dispatch
from streams.core.flow import Flow
from streams.core.record import Output
from streams.core.state import State
from streams.core.wire import LifecycleDispatchParked, RowDispatch


def blocked(state: State, flow: Flow, destination: str, /) -> bool:
    """Whether a binding's next attempt is held back from a destination."""
    if flow.circuit == "off":
        return False
    if flow.circuit == "dlq":
        return circuit.closed_at(state, destination) > state.now_ms
    return circuit.is_open(state, destination)


def refusal(state: State, flow: Flow, destination: str, /) -> str | None:
    """Return why a dispatch that is held back cannot be parked: an error; None when it can."""
    if flow.circuit == "dlq":
        remaining_ms = circuit.closed_at(state, destination) - state.now_ms
        seconds = max(-(-remaining_ms // 1_000), 1)
        return f"circuit open: {destination} fails; it is tried again in {seconds} s"
    index: DispatchIndex = state.index
    parked = index.slots.waiters(parked_key(destination))
    if parked >= flow.waiting_max:
        return f"circuit open: {destination} fails, and {parked} dispatches are parked already"
    return None


def park(state: State, row: RowDispatch, /) -> Output:
    """Store a dispatch as parked, without slots; whoever calls this gives those to others."""
    index: DispatchIndex = state.index
    binding = index.bindings[row["binding_key"]]
    destination = destination_of(binding)
    until_ms = state.now_ms + index.flow(row["binding_key"]).circuit_max_park_ms
    parked: RowDispatch = {
        **row,
        "status": "parked",
        "due_ms": until_ms,
        "since_ms": state.now_ms,
        "invoker_id": None,
        "gate": None,
        "holds": [],
    }
    state.rows.put(f"d:{row['dispatch_id']}", parked)
    index.slots.wait(parked_key(destination), row["dispatch_id"], state.now_ms, row["arrival"])
    value: LifecycleDispatchParked = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "destination": destination,
        "attempt": row["attempt"],
        "until_ms": until_ms,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return Dispatch(row, binding).output(LIFECYCLE, "DispatchParked", value)


def unpark(state: State, row: RowDispatch, destination: str, /) -> RowDispatch:
    """Return a parked dispatch's row as it goes on; it is not stored."""
    index: DispatchIndex = state.index
    index.slots.leave(parked_key(destination), row["dispatch_id"])
    return {**row, "status": "waiting", "due_ms": None, "since_ms": 0}


def left(state: State, row: RowDispatch, /) -> None:
    """Note that a dispatch ended: it waits no more, and probes no more."""
    index: DispatchIndex = state.index
    destination = destination_of(index.bindings[row["binding_key"]])
    if row["status"] == "parked":
        index.slots.leave(parked_key(destination), row["dispatch_id"])
    circuit.probe_left(state, destination, row["dispatch_id"])
