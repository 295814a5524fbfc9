"""Admission: a dispatch passes the gates that its binding declares, in their order.

| gate | free | on excess |
|---|---|---|
| batch | collected; a full, large or late one goes on as its leader | merged: `batch_merged` |
| debounce | waits for its period | superseded: skipped `debounced` |
| rate_limit | goes on | skipped `rate_limited` |
| throttle | goes on | waits until those before have started, and the window lets it |
| singleton | holds the slot | skipped `singleton_active`; one that gave it up waits for it |
| concurrency | holds a slot | waits, by priority, then arrival |

A gate's answer is a `Verdict`; what follows (the next gate, the first attempt, the terminal record)
is the dispatch fold's business.

Invariants: in any window of a period, no more than `max` dispatches pass rate_limit or throttle; no
more than one holds singleton, `max` concurrency, at every log position; nothing waits without a
due time or a holder that will let it go on.

Source: SEMANTICS 3; decisions of DESIGN 7 on slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from streams.core.flow import Debounce, Flow, Window
from streams.core.gate import window
from streams.core.gate.decision import decision
from streams.core.gate.slots import SLOT_GATES, GateKey, Slots, gate_key, place_of
from streams.core.record import Output
from streams.core.state import State
from streams.core.wire import RowDispatch

BATCH_BYTES_MAX = 600_000
"""Of a batch's events, each counted as leader and as member: with a history of attempts, they must
fit into one record."""

# Made once: a text that is put together for each event is hashed for each, too.
_ACQUIRED = {gate: f"{gate}_acquired" for gate in SLOT_GATES}
_RELEASED = {gate: f"{gate}_released" for gate in SLOT_GATES}


class Verdict(NamedTuple):
    """A gate's answer about one dispatch.

    Exactly one of: `row` goes on to the next gate; the dispatch `waits` as it is stored; it is
    skipped with a `skip` code; it is `full`: the DLQ's.  `skipped` are other dispatches that this
    one supersedes or merges, each with its code.
    """

    row: RowDispatch | None = None
    waits: RowDispatch | None = None
    skip: str | None = None
    full: bool = False
    outputs: tuple[Output, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


def _passes(row: RowDispatch, said: Output) -> Verdict:
    """Let a dispatch go on to the next gate, with the decision that says so."""
    # Of all its fields at once: a constructor's keywords take three times as long.
    return Verdict._make((row, None, None, False, (said,), ()))


def meet(state: State, slots: Slots, flow: Flow, row: RowDispatch, gate: str, /) -> Verdict:
    """Put a dispatch before a gate that its binding declares, for the first time."""
    return _MEET[gate](state, slots, flow, row)


def due(state: State, slots: Slots, flow: Flow, row: RowDispatch, /) -> Verdict:
    """Time has come for a dispatch that waits at a gate with a due time."""
    gate = row["gate"]
    assert gate in _DUE, "only gates with a clock have a due time"
    return _DUE[gate](state, slots, flow, row)


def withdraw(state: State, slots: Slots, row: RowDispatch, /) -> None:
    """Take a dispatch that ends out of the queue of the gate that it waits at.

    What fires at the first one's due time, a batch or a throttle's next start, fires then all the
    same: who is the first now inherits it.
    """
    gate = row["gate"]
    assert gate is not None, "a gated dispatch waits at a gate"
    key = gate_key(row, gate)
    slots.leave(key, row["dispatch_id"])
    heir = slots.first(key) if gate in _DUE and row["due_ms"] is not None else None
    if heir is not None:
        _set_due(state, heir, row["due_ms"])


def let_go(slots: Slots, row: RowDispatch, gates: Iterable[str], /) -> list[Output]:
    """Give back the slots that a dispatch holds at these gates; tells the gates' topics."""
    outputs: list[Output] = []
    for gate in gates:
        key = gate_key(row, gate)
        if slots.release(key, row["dispatch_id"]):
            outputs.append(decision(row, key, _RELEASED[gate]))
    return outputs


def next_waiter(slots: Slots, flow: Flow, row: RowDispatch, gate: str, /) -> str | None:
    """The dispatch whose turn it is at a slot gate's key of `row`, if a slot is free."""
    key = gate_key(row, gate)
    return slots.first(key) if slots.held(key) < _limit(flow, gate) else None


def acquire(slots: Slots, flow: Flow, row: RowDispatch, gate: str, /) -> Verdict:
    """Give the free slot to the waiter whose turn it is."""
    key = gate_key(row, gate)
    slots.leave(key, row["dispatch_id"])
    return _hold(slots, flow, row, key)


def is_free(slots: Slots, flow: Flow, row: RowDispatch, gate: str, /) -> bool:
    """Whether a slot gate has a slot that nobody holds, whoever waits."""
    return slots.held(gate_key(row, gate)) < _limit(flow, gate)


def queue_again(slots: Slots, row: RowDispatch, gate: str, /) -> RowDispatch:
    """Queue a dispatch that gave its slot up, at its old place; it was admitted: it is not full."""
    slots.wait(gate_key(row, gate), row["dispatch_id"], row["rank"], row["arrival"])
    return {**row, "status": "gated", "gate": gate, "due_ms": None}


# ---------------------------------------------------------------------- waiting
def _wait(
    slots: Slots,
    flow: Flow,
    row: RowDispatch,
    gate: str,
    due_ms: int | None,
    outputs: tuple[Output, ...],
) -> Verdict:
    key = gate_key(row, gate)
    if slots.waiters(key) >= flow.waiting_max:
        return Verdict(full=True, outputs=outputs)
    waits: RowDispatch = {**row, "status": "gated", "gate": gate, "due_ms": due_ms}
    slots.wait(key, row["dispatch_id"], place_of(row, gate), row["arrival"], row["body_bytes"])
    return Verdict(waits=waits, outputs=outputs)


def _row_of(state: State, dispatch_id: str) -> RowDispatch:
    row: RowDispatch | None = state.rows.get(f"d:{dispatch_id}")
    assert row is not None, "a waiter has a row"
    return row


def _set_due(state: State, dispatch_id: str, due_ms: int | None) -> None:
    row: RowDispatch = {**_row_of(state, dispatch_id), "due_ms": due_ms}
    state.rows.put(f"d:{dispatch_id}", row)


# ---------------------------------------------------------------------- batch
def _meet_batch(state: State, slots: Slots, flow: Flow, row: RowDispatch) -> Verdict:
    batch = flow.batch
    assert batch is not None, "the gate is declared"
    key = gate_key(row, "batch")
    if row["body_bytes"] > BATCH_BYTES_MAX:
        return _passes(row, decision(row, key, "batch_dispatched", count=1))
    leader, size = slots.first(key), slots.waiters(key) + 1
    if leader is not None and slots.waiting_bytes(key) + row["body_bytes"] > BATCH_BYTES_MAX:
        fired = _fire_batch(slots, _row_of(state, leader))
        first = _collect(state, slots, flow, row, size=1)
        assert first.waits is not None, "there is room where nobody waits"
        state.rows.put(f"d:{row['dispatch_id']}", first.waits)
        outputs = (*fired.outputs, *first.outputs)
        return Verdict(row=fired.row, outputs=outputs, skipped=fired.skipped)
    answer = _collect(state, slots, flow, row, size=size)
    if answer.waits is None or size < batch.size:
        return answer
    state.rows.put(f"d:{row['dispatch_id']}", answer.waits)
    fired = _fire_batch(slots, answer.waits if leader is None else _row_of(state, leader))
    return Verdict(row=fired.row, outputs=(*answer.outputs, *fired.outputs), skipped=fired.skipped)


def _collect(state: State, slots: Slots, flow: Flow, row: RowDispatch, *, size: int) -> Verdict:
    """Let a dispatch wait as the last of `size`; the first one's due time is the batch's."""
    batch = flow.batch
    assert batch is not None, "the gate is declared"
    enqueued = decision(row, gate_key(row, "batch"), "batch_enqueued", size=size)
    due_ms = state.now_ms + batch.timeout_ms if size == 1 else None
    return _wait(slots, flow, row, "batch", due_ms, (enqueued,))


def _fire_batch(slots: Slots, leader: RowDispatch) -> Verdict:
    """Let a batch go on as its leader; the others are merged into it, in arrival order."""
    key = gate_key(leader, "batch")
    members = slots.in_order(key)
    if leader["dispatch_id"] not in members:
        members = [leader["dispatch_id"], *members]
    for member in members:
        slots.leave(key, member)
    fired: RowDispatch = {**leader, "members": members}
    dispatched = decision(leader, key, "batch_dispatched", count=len(members))
    followers = tuple(
        (member, "batch_merged") for member in members if member != leader["dispatch_id"]
    )
    return Verdict(row=fired, outputs=(dispatched,), skipped=followers)


def _due_batch(_state: State, slots: Slots, _flow: Flow, row: RowDispatch) -> Verdict:
    slots.leave(gate_key(row, "batch"), row["dispatch_id"])
    return _fire_batch(slots, row)


# ---------------------------------------------------------------------- debounce
def _meet_debounce(state: State, slots: Slots, flow: Flow, row: RowDispatch) -> Verdict:
    debounce = flow.debounce
    assert debounce is not None, "the gate is declared"
    key = gate_key(row, "debounce")
    seen = decision(row, key, "debounce_seen")
    earlier = slots.in_order(key)
    first_ms = state.now_ms
    for dispatch_id in earlier:
        first_ms = min(first_ms, _row_of(state, dispatch_id)["since_ms"])
        slots.leave(key, dispatch_id)
    since: RowDispatch = {**row, "since_ms": first_ms}
    answer = _wait(
        slots, flow, since, "debounce", _debounced_at(state, debounce, first_ms), (seen,)
    )
    skipped = tuple((dispatch_id, "debounced") for dispatch_id in earlier)
    return Verdict(waits=answer.waits, full=answer.full, outputs=answer.outputs, skipped=skipped)


def _debounced_at(state: State, debounce: Debounce, first_ms: int) -> int:
    due_ms = state.now_ms + debounce.period_ms
    return due_ms if debounce.max_wait_ms is None else min(due_ms, first_ms + debounce.max_wait_ms)


def _due_debounce(_state: State, slots: Slots, _flow: Flow, row: RowDispatch) -> Verdict:
    key = gate_key(row, "debounce")
    slots.leave(key, row["dispatch_id"])
    selected = decision(row, key, "debounce_selected")
    return _passes(row, selected)


# ---------------------------------------------------------------------- rate_limit
def _meet_rate_limit(state: State, _slots: Slots, flow: Flow, row: RowDispatch) -> Verdict:
    limit = flow.rate_limit
    assert limit is not None, "the gate is declared"
    key = gate_key(row, "rate_limit")
    happened, _ = window.starts_of(state, key)
    if window.free_at(happened, limit) > state.now_ms:
        blocked = decision(row, key, "rate_limit_blocked", max_=limit.max)
        return Verdict(skip="rate_limited", outputs=(blocked,))
    window.keep(state, key, limit, window.with_start(happened, state.now_ms), window.NONE)
    return _passes(row, decision(row, key, "rate_limit_allowed", max_=limit.max))


# ---------------------------------------------------------------------- throttle
def _meet_throttle(state: State, slots: Slots, flow: Flow, row: RowDispatch) -> Verdict:
    """Go on if the window lets it and nobody waits; else wait behind those who do.

    The first one alone has a due time, when the window lets the next start in; whoever leaves, by
    starting or otherwise, hands it on.  So nothing is planned for those who are cancelled.
    """
    limit = flow.throttle
    assert limit is not None, "the gate is declared"
    key = gate_key(row, "throttle")
    happened, _ = window.starts_of(state, key)
    ahead, first = slots.waiters(key), slots.first(key)
    if first is None and window.free_at(happened, limit) <= state.now_ms:
        return _start_throttled(state, limit, row, happened)
    start_ms = window.nth_free_at(happened, limit, ahead, state.now_ms)
    said = decision(row, key, "throttle_wait", delay_ms=start_ms - state.now_ms)
    waits = _wait(slots, flow, {**row, "since_ms": state.now_ms}, "throttle", None, (said,))
    if waits.waits is None:
        return Verdict(full=True)
    if slots.first(key) != row["dispatch_id"]:
        return waits
    if first is not None:  # it came at the same time, from further behind in the log
        _set_due(state, first, None)
    due_ms = window.nth_free_at(happened, limit, 0, state.now_ms)
    return waits._replace(waits={**waits.waits, "due_ms": due_ms})


def _due_throttle(state: State, slots: Slots, flow: Flow, row: RowDispatch) -> Verdict:
    """Start the first of those who wait, and say when the next one shall.

    Builds that gave each of them a due time left rows of which others are due, or are due while the
    window is full: such a one waits on, with a due time only if it is the first.
    """
    limit = flow.throttle
    assert limit is not None, "the gate is declared"
    key = gate_key(row, "throttle")
    happened, _ = window.starts_of(state, key)
    free_ms = window.free_at(happened, limit)
    is_first = slots.first(key) == row["dispatch_id"]
    if not is_first or free_ms > state.now_ms:
        return Verdict(waits={**row, "due_ms": free_ms if is_first else None})
    slots.leave(key, row["dispatch_id"])
    started = _start_throttled(state, limit, row, happened)
    upcoming = slots.first(key)
    if upcoming is not None:
        happened, _ = window.starts_of(state, key)
        _set_due(state, upcoming, window.nth_free_at(happened, limit, 0, state.now_ms))
    return started


def _start_throttled(
    state: State, limit: Window, row: RowDispatch, happened: window.Starts
) -> Verdict:
    key = gate_key(row, "throttle")
    window.keep(state, key, limit, window.with_start(happened, state.now_ms), window.NONE)
    return _passes(row, decision(row, key, "throttle_acquired", max_=limit.max))


# ---------------------------------------------------------------------- singleton and concurrency
def _meet_singleton(_state: State, slots: Slots, flow: Flow, row: RowDispatch) -> Verdict:
    key = gate_key(row, "singleton")
    if slots.is_idle(key):
        return _hold(slots, flow, row, key)
    # Those who wait had the slot, and gave it up: they have it before whoever is new.
    return Verdict(skip="singleton_active", outputs=(decision(row, key, "singleton_skipped"),))


def _meet_concurrency(_state: State, slots: Slots, flow: Flow, row: RowDispatch) -> Verdict:
    key = gate_key(row, "concurrency")
    if not slots.waiters(key) and slots.held(key) < _limit(flow, "concurrency"):
        return _hold(slots, flow, row, key)
    return _wait(slots, flow, row, "concurrency", None, ())


def _limit(flow: Flow, gate: str) -> int:
    """How many may hold a slot of a gate key at once."""
    if gate == "singleton":
        return 1
    assert flow.concurrency is not None, "the gate is declared"
    return flow.concurrency.max


def _hold(slots: Slots, flow: Flow, row: RowDispatch, key: GateKey) -> Verdict:
    gate = key[0]
    slots.hold(key, row["dispatch_id"])
    held: RowDispatch = {**row, "holds": [*row["holds"], gate]}
    max_ = _limit(flow, gate) if gate == "concurrency" else None
    return _passes(held, decision(row, key, _ACQUIRED[gate], max_=max_))


_Meet = Callable[[State, Slots, Flow, RowDispatch], Verdict]

_MEET: dict[str, _Meet] = {
    "batch": _meet_batch,
    "debounce": _meet_debounce,
    "rate_limit": _meet_rate_limit,
    "throttle": _meet_throttle,
    "singleton": _meet_singleton,
    "concurrency": _meet_concurrency,
}

_DUE: dict[str, _Meet] = {
    "batch": _due_batch,
    "debounce": _due_debounce,
    "throttle": _due_throttle,
}
