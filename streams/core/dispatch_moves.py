"""What can be done with a live dispatch: through its gates, to an invoker, to an end.

These moves call each other: an end frees a slot, the slot lets a waiter go on, the waiter may be
skipped, which is an end.  Each call handles one dispatch and leaves its row as the log says.

Source: DESIGN "An invocation", decisions on slots; SEMANTICS 2.3, 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streams.core import binding_drain, budget, dlq, parking, worker_queue
from streams.core.cancel_records import cancelled
from streams.core.destination import destination_of
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_records import (
    Dispatch,
    ask,
    attempt_finished,
    attempt_started,
    dead_lettered,
    invoke,
    skipped,
    succeeded,
)
from streams.core.event_json import event_json
from streams.core.flow import Flow
from streams.core.gate import admission
from streams.core.record import Output
from streams.core.state import State
from streams.core.wire import AttemptEntry, DispatchStatus, RowDispatch, RowEvent, TriggerEvent


def row_key(dispatch_id: str, /) -> str:
    """Key of a live dispatch's row."""
    return f"d:{dispatch_id}"


def event_key(dispatch_id: str, /) -> str:
    """Key of the row that holds a live dispatch's event, when the dispatch's own does not."""
    return f"e:{dispatch_id}"


def advance(state: State, row: RowDispatch, passed: str | None) -> list[Output]:
    """Take a dispatch through the gates behind `passed`, and on to its attempt if all let it."""
    index: DispatchIndex = state.index
    flow = index.flow(row["binding_key"])
    gates = flow.declared
    outputs: list[Output] = []
    for gate in gates if passed is None else gates[gates.index(passed) + 1 :]:
        if gate in row["holds"]:
            continue
        if index.circuits and gate in flow.slots and not _is_skipped(index, flow, row, gate):
            held_back = hold_back(state, row)
            if held_back is not None:
                return [*outputs, *held_back]
        verdict = admission.meet(state, index.slots, flow, row, gate)
        further = follow(state, row, verdict, outputs)
        if further is None:
            return outputs
        row = further
    return [*outputs, *start(state, row)]


def _is_skipped(index: DispatchIndex, flow: Flow, row: RowDispatch, gate: str) -> bool:
    """Whether a singleton is held, which skips a dispatch whatever its destination does."""
    return gate == "singleton" and not admission.is_free(index.slots, flow, row, gate)


def start(state: State, row: RowDispatch) -> list[Output]:
    """Start the row's attempt, unless its destination's circuit holds it back."""
    flow: Flow = state.index.flow(row["binding_key"])
    if flow.queue is not None:
        return enqueue(state, row, flow.queue, flow.queue_priority)
    held_back = hold_back(state, row) if state.index.circuits else None
    if held_back is not None:
        return held_back
    lifecycle, outbox = attempt_started(dispatch_of(state, row))
    return [lifecycle, outbox, invoke_again(state, row)]


def enqueue(state: State, row: RowDispatch, queue: str, priority: str) -> list[Output]:
    """Append a dispatch as a job to its worker queue, which ends it: the receipt is its result."""
    entry: AttemptEntry = {
        "attempt": row["attempt"],
        "outcome": "success",
        "error": None,
        "started_at_ms": state.now_ms,
        "completed_at_ms": state.now_ms,
    }
    done: RowDispatch = {**row, "attempts": [*row["attempts"], entry]}
    dispatch = dispatch_of(state, done)
    return [
        *attempt_started(dispatch),
        worker_queue.job(dispatch, event_of(state, row), queue, priority),
        attempt_finished(dispatch, entry),
        *succeed(state, done, worker_queue.receipt(row, queue)),
    ]


def hold_back(state: State, row: RowDispatch) -> list[Output] | None:
    """Park a dispatch whose destination's circuit is open, or end it; None when it is closed."""
    index: DispatchIndex = state.index
    flow = index.flow(row["binding_key"])
    destination = destination_of(index.bindings[row["binding_key"]])
    retries = bool(row["attempts"])  # without parking, only first attempts are held back
    if not parking.blocked(state, flow, destination) or (retries and flow.circuit == "dlq"):
        return None
    error = parking.refusal(state, flow, destination)
    if error is not None:
        return list(dead_letter(state, row, error, "unknown", "circuit_open"))
    return [parking.park(state, row), *let_on(state, row, row["holds"])]


def follow(
    state: State, row: RowDispatch, verdict: admission.Verdict, outputs: list[Output]
) -> RowDispatch | None:
    """Carry out a gate's verdict; return the row that goes on, if one does."""
    outputs += verdict.outputs
    further = verdict.row
    if further is not None and further["members"]:
        further = _merged(state, further)
    for dispatch_id, code in verdict.skipped:
        superseded = _live(state, dispatch_id)
        outputs += skip(state, superseded, "flow_control", {"flow_control": code})
    if further is not None:
        waited = further["gate"] is not None or further["due_ms"] is not None
        return {**further, "gate": None, "due_ms": None} if waited else further
    if verdict.waits is not None:
        state.rows.put(row_key(row["dispatch_id"]), verdict.waits)
    elif verdict.full:
        waiting_max = state.index.flow(row["binding_key"]).waiting_max
        error = f"{waiting_max} dispatches wait at the gate already"
        outputs += dead_letter(state, row, error, "budget_exhausted", "gate_full")
    else:
        assert verdict.skip is not None, "a verdict says one thing"
        outputs += skip(state, row, "flow_control", {"flow_control": verdict.skip})
    return None


def _merged(state: State, leader: RowDispatch) -> RowDispatch:
    """Attach every member of a batch to its leader's event, as JSON text, in arrival order.

    A member that replays a batch brings that one's members, itself among them.
    """
    event = event_of(state, leader)
    members = [event_of(state, _live(state, dispatch_id)) for dispatch_id in leader["members"]]
    texts = [text for member in members for text in (member["batch"] or (event_json(member),))]
    merged: RowEvent = {"event": {**event, "batch": texts}}
    state.rows.put(event_key(leader["dispatch_id"]), merged)
    return {**leader, "event": None}


def skip(state: State, row: RowDispatch, stage: str, detail: Mapping[str, str]) -> list[Output]:
    """End a dispatch that its predicate or a gate keeps from its first attempt."""
    ended = skipped(dispatch_of(state, row), stage, detail)
    told = _told(state, row, "skipped")
    _forget(state, row)
    return [ended, *told, *_ended(state, row)]


def let_on(state: State, row: RowDispatch, gates: Iterable[str]) -> list[Output]:
    """Give back slots of a dispatch, and let those go on whose turn it is now.

    What goes on may end, and so set slots free itself: those are dealt with here, one after the
    other, however many they are.
    """
    index: DispatchIndex = state.index
    outputs = admission.let_go(index.slots, row, gates)
    if not index.slots.waiting:
        return outputs
    if index.flow(row["binding_key"]).slots:
        index.freed.append(row)
    if index.letting_on:
        return outputs
    index.letting_on = True
    while index.freed:
        outputs += _pump(state, index.freed.popleft())
    index.letting_on = False
    return outputs


def _pump(state: State, row: RowDispatch) -> list[Output]:
    """Give the free slots of the gate keys of `row` to those who wait for them."""
    index: DispatchIndex = state.index
    flow = index.flow(row["binding_key"])
    outputs: list[Output] = []
    if index.circuits and _is_blocked(state, row):
        return _park_waiters(state, row)
    for gate in flow.slots:
        while (dispatch_id := admission.next_waiter(index.slots, flow, row, gate)) is not None:
            waiter = _live(state, dispatch_id)
            verdict = admission.acquire(index.slots, flow, waiter, gate)
            further = follow(state, waiter, verdict, outputs)
            assert further is not None, "a free slot lets its waiter go on"
            outputs += reenter(state, further)
    return outputs


def _is_blocked(state: State, row: RowDispatch) -> bool:
    index: DispatchIndex = state.index
    binding = index.bindings.get(row["binding_key"])
    flow = index.flow(row["binding_key"])
    return binding is not None and parking.blocked(state, flow, destination_of(binding))


def _park_waiters(state: State, row: RowDispatch) -> list[Output]:
    """Park those whose turn it is, in place of the slot: they go on when the circuit closes.

    One for each gate key is enough: when it goes on, all slots of the key are dealt out.
    """
    index: DispatchIndex = state.index
    flow = index.flow(row["binding_key"])
    outputs: list[Output] = []
    for gate in flow.slots:
        dispatch_id = admission.next_waiter(index.slots, flow, row, gate)
        if dispatch_id is not None:
            waiter = _live(state, dispatch_id)
            admission.withdraw(state, index.slots, waiter)
            outputs.append(parking.park(state, waiter))
            index.freed.extend([waiter] if waiter["holds"] else ())
            outputs += admission.let_go(index.slots, waiter, waiter["holds"])
    return outputs


def reenter(state: State, row: RowDispatch) -> list[Output]:
    """Start a dispatch's attempt; slots that it gave up meanwhile are queued for at its old place.

    It was admitted once: no gate skips it, and none is full for it.
    """
    index: DispatchIndex = state.index
    missing = [gate for gate in index.flow(row["binding_key"]).slots if gate not in row["holds"]]
    if not missing:
        return start(state, row)
    held_back = hold_back(state, row) if index.circuits else None
    if held_back is not None:
        return held_back
    waits = admission.queue_again(index.slots, row, missing[0])
    state.rows.put(row_key(row["dispatch_id"]), waits)
    return let_on(state, waits, ())


def invoke_again(state: State, row: RowDispatch) -> Output:
    """Make the intent for a row whose fence has just grown; the row is stored with an invoker."""
    flow: Flow = state.index.flow(row["binding_key"])
    evaluates = row["attempt"] == 0
    status: DispatchStatus = "evaluating" if evaluates else "invoked"
    invoked: RowDispatch = row
    if row["status"] != status or row["due_ms"] is not None or row["invoker_id"] is not None:
        invoked = {**row, "status": status, "due_ms": None, "invoker_id": None}
    state.rows.put(row_key(row["dispatch_id"]), invoked)
    dispatch, event = dispatch_of(state, invoked), event_of(state, row)
    if evaluates:
        assert flow.function is not None, "only a function is evaluated by an invoker"
        return ask(dispatch, event, state.partition, flow.function, flow.function_timeout_ms)
    return invoke(dispatch, event, state.partition, flow.timeout_ms)


def event_of(state: State, row: RowDispatch) -> TriggerEvent:
    """Return the event of a live dispatch."""
    if row["event"] is not None:
        return row["event"]
    body: RowEvent | None = state.rows.get(event_key(row["dispatch_id"]))
    assert body is not None, "a live dispatch keeps its event"
    return body["event"]


def _live(state: State, dispatch_id: str) -> RowDispatch:
    """Return the row of a dispatch that is known to be live."""
    row: RowDispatch | None = state.rows.get(row_key(dispatch_id))
    assert row is not None, "whoever waits, or is superseded, is live"
    return row


def dispatch_of(state: State, row: RowDispatch) -> Dispatch:
    """Return a dispatch's row with its binding."""
    index: binding_drain.Bindings = state.index
    return Dispatch(row, index.bindings[row["binding_key"]])


def succeed(state: State, row: RowDispatch, result: str | None) -> Iterable[Output]:
    """End a dispatch that its handler finished."""
    ended = succeeded(dispatch_of(state, row), result)
    told = _told(state, row, "succeeded")
    _forget(state, row)
    return (*ended, *told, *_ended(state, row))


def dead_letter(
    state: State, row: RowDispatch, error: str, error_class: str, reason: str
) -> Iterable[Output]:
    """End a dispatch undelivered, in the DLQ."""
    event = event_of(state, row)
    dispatch = dispatch_of(state, row)
    _forget(state, row)
    moved = dead_lettered(
        dispatch,
        event,
        home_partition=state.partition,
        error=error,
        error_class=error_class,
        reason=reason,
    )
    told = dlq.moved(state, row, event, error, error_class, reason)
    return (*moved, *told, *_ended(state, row))


def end_cancelled(state: State, row: RowDispatch, reason: str) -> Iterable[Output]:
    """End a dispatch that an operator cancelled."""
    ended = cancelled(dispatch_of(state, row), reason)
    told = _told(state, row, "cancelled")
    _forget(state, row)
    return (*ended, *told, *_ended(state, row))


def _told(state: State, row: RowDispatch, outcome: str) -> Iterable[Output]:
    """Tell the dead letter that the dispatch replays, if it does, how it ended."""
    if row["dlq_entry_id"] is None:
        return ()
    return dlq.replayed(row, event_of(state, row), outcome)


def _forget(state: State, row: RowDispatch) -> None:
    state.rows.delete(row_key(row["dispatch_id"]))
    if row["event"] is None:
        state.rows.delete(event_key(row["dispatch_id"]))


def _ended(state: State, row: RowDispatch) -> Iterable[Output]:
    """Say what the end of a dispatch sets free: slots, and a drained binding's last one ends it."""
    index: DispatchIndex = state.index
    if row["reserved_micros"]:
        budget.release(state, row)
    if index.circuits:
        parking.left(state, row)
    parked = row["status"] == "parked"  # another one may have to stand in its place
    outputs: list[Output] = let_on(state, row, row["holds"]) if row["holds"] or parked else []
    index.closed(row["binding_key"])
    index.left(row)
    outputs += binding_drain.ended_if_idle(state, row["binding_key"])
    return outputs
