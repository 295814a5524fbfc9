"""The circuit of a destination: while what attempts go to fails, they are held back.

| here | happens | answer |
|---|---|---|
| closed | an attempt fails, to be retried: the fifth in a row | open: ours, and all are told |
| open, ours | its time has come | one parked dispatch probes it |
| | … and none is parked here | the next partition is asked to |
| | the probe fails | open for as long again |
| | an attempt gets through | closed, told to all |
| open, another's | its partition says something | followed |
| asked to probe, ours is open as well | | the other one ends: one probe is enough |
| every partition was asked, none can | | closed untested: one failure opens it again |

A destination is open while there is an episode of it.  Each episode has one partition that answers
for it, whose words reach the others in order; so all agree in the end on what is open.

Invariants: one probe of an episode at a time; a dispatch is parked only while its destination is
open, or while those are let go on that were; a destination that works has no row.

Source: SEMANTICS 2.13; DESIGN 7, A12/A13 and "Circuits, predicate breakers and budgets".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streams.core.destination import circuit_key, parked_key
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_records import LIFECYCLE
from streams.core.record import Output
from streams.core.state import State
from streams.core.wire import (
    CircuitChange,
    CircuitChanged,
    CircuitEpisode,
    CircuitState,
    LifecycleCircuitChanged,
    RowCircuit,
)

FAILURES_MAX: Final = 5
"""Attempts that fail in a row, with which a circuit opens."""

OPEN_MS: Final = 60_000
"""How long it is open before it is probed."""

SOON_MS: Final = 1
"""A row that was due must not be due at the same time again."""

DISPATCHES = "trigger.dispatches"


def circuit_of(state: State, destination: str, /) -> RowCircuit | None:
    """Return what this partition knows of a destination; None when it works."""
    index: DispatchIndex = state.index
    return index.circuits.get(destination)


def is_open(state: State, destination: str, /) -> bool:
    """Whether attempts are held back until an episode's partition says that they can go on."""
    row = circuit_of(state, destination)
    return row is not None and bool(row["episodes"])


def closed_at(state: State, destination: str, /) -> int:
    """Return when every open episode's time has come, ms since epoch; 0 without one."""
    row = circuit_of(state, destination)
    return 0 if row is None else max((each["until_ms"] for each in row["episodes"]), default=0)


def keep(state: State, row: RowCircuit, /) -> None:
    """Store a destination's row, or forget one that says nothing."""
    index: DispatchIndex = state.index
    destination = row["destination"]
    if row["failures"] or row["episodes"] or row["due_ms"] is not None:
        index.circuits[destination] = row
        state.rows.put(circuit_key(destination), row)
    elif index.circuits.pop(destination, None) is not None:
        state.rows.delete(circuit_key(destination))


def forget(state: State, destination: str, /) -> None:
    """Forget the failures of a destination that no binding has any more."""
    row = circuit_of(state, destination)
    if row is not None and not row["episodes"]:
        keep(state, {**row, "failures": 0})


def fresh(destination: str, /) -> RowCircuit:
    """Return the row of a destination that works."""
    return {
        "destination": destination,
        "failures": 0,
        "episodes": [],
        "own": None,
        "probe": None,
        "passes": 0,
        "due_ms": None,
    }


# ---------------------------------------------------------------------- what attempts come to
def failed(
    state: State, destination: str, dispatch_id: str, /, *, restarts: bool = False
) -> list[Output]:
    """Count an attempt that failed in a way that is retried.

    With `restarts` one that fails while the circuit is open keeps it open for as long again.
    """
    row = circuit_of(state, destination) or fresh(destination)
    if row["episodes"]:
        # What started before the circuit opened says nothing new, unless nobody holds it back.
        late = closed_at(state, destination) <= state.now_ms
        again = restarts or late or row["probe"] == dispatch_id
        return _reopened(state, row) if again else []
    failures = row["failures"] + 1
    if failures < FAILURES_MAX:
        keep(state, {**row, "failures": failures})
        return []
    episode: CircuitEpisode = {
        "id": f"{state.partition}-{state.now_ms}",
        "until_ms": state.now_ms + OPEN_MS,
    }
    opened: RowCircuit = {
        **row,
        "failures": failures,
        "episodes": [episode],
        "own": episode["id"],
        "due_ms": episode["until_ms"],
    }
    keep(state, opened)
    return [changed(state, opened, "open"), *told(state, destination, episode, "opened")]


def _reopened(state: State, row: RowCircuit) -> list[Output]:
    """Hold attempts back for as long again; the others only if the episode is ours."""
    until_ms = state.now_ms + OPEN_MS
    own = row["own"]
    ours: CircuitEpisode = {"id": own or "", "until_ms": until_ms}
    episodes: list[CircuitEpisode] = [
        ours if each["id"] == own else {**each, "until_ms": until_ms} if own is None else each
        for each in row["episodes"]
    ]
    again: RowCircuit = {
        **row,
        "failures": row["failures"] + 1,
        "episodes": episodes,
        "probe": None,
        "passes": 0,
        "due_ms": row["due_ms"] if own is None else until_ms,
    }
    keep(state, again)
    outputs = [changed(state, again, "open")]
    if own is not None:
        outputs += told(state, row["destination"], ours, "opened")
    return outputs


def succeeded(state: State, destination: str, /) -> list[Output]:
    """Note that an attempt got through: the destination works, whatever we have heard of it.

    An episode of another partition ends here when its time has come.
    """
    row = circuit_of(state, destination)
    if row is None:
        return []
    own = row["own"]
    ended = [each for each in row["episodes"] if each["id"] == own]
    kept = [
        each for each in row["episodes"] if each["id"] != own and each["until_ms"] > state.now_ms
    ]
    closed: RowCircuit = {**row, "failures": 0, "episodes": kept, "own": None, "probe": None}
    outputs = [out for each in ended for out in told(state, destination, each, "closed")]
    return [*outputs, *settled(state, row, {**closed, "passes": 0})]


def probe_answered(state: State, destination: str, dispatch_id: str, /) -> list[Output]:
    """Note a final answer: whoever refuses an attempt for good works."""
    row = circuit_of(state, destination)
    if row is None or row["probe"] != dispatch_id:
        return []
    return succeeded(state, destination)


def probe_left(state: State, destination: str, dispatch_id: str, /) -> None:
    """Note that a dispatch is gone; if it probed the circuit, another one is to."""
    row = circuit_of(state, destination)
    if row is not None and row["probe"] == dispatch_id:
        keep(state, {**row, "probe": None, "due_ms": state.now_ms + SOON_MS})


def settled(state: State, before: RowCircuit, after: RowCircuit, /) -> list[Output]:
    """Store a row whose episodes may be fewer; when none is left, parked dispatches go on."""
    index: DispatchIndex = state.index
    outputs: list[Output] = []
    if before["episodes"] and not after["episodes"]:
        parked = index.slots.waiters(parked_key(after["destination"]))
        outputs.append(changed(state, after, "closed"))
        after = {**after, "due_ms": state.now_ms + SOON_MS if parked else None}
    elif after["own"] is None and after["episodes"]:
        after = {**after, "due_ms": None}
    keep(state, after)
    return outputs


# ---------------------------------------------------------------------- what partitions are told
def told(
    state: State,
    destination: str,
    episode: CircuitEpisode,
    change: CircuitChange,
    /,
) -> Iterable[Output]:
    """Make the word on an episode for every other partition."""
    for partition in range(state.partitions):
        if partition != state.partition:
            yield word(state, destination, episode, change, partition, 0)


def word(
    state: State,
    destination: str,
    episode: CircuitEpisode,
    change: CircuitChange,
    partition: int,
    passes: int,
    /,
) -> Output:
    """Make the word on an episode for one partition."""
    value: CircuitChanged = {
        "destination": destination,
        "episode": episode["id"],
        "change": change,
        "partition": state.partition,
        "until_ms": episode["until_ms"],
        "passes": passes,
    }
    key = f"circuit:{state.partition}"
    return Output(DISPATCHES, "circuit_changed", key, value, partition=partition)


def changed(state: State, row: RowCircuit, circuit: CircuitState, /) -> Output:
    """Make the lifecycle record of a circuit."""
    index: DispatchIndex = state.index
    destination = row["destination"]
    due = [each["until_ms"] for each in row["episodes"] if circuit == "open"]
    value: LifecycleCircuitChanged = {
        "destination": destination,
        "state": circuit,
        "partition": state.partition,
        "failures": row["failures"],
        "until_ms": max(due, default=None),
        "parked": index.slots.waiters(parked_key(destination)),
    }
    return Output(LIFECYCLE, "CircuitChanged", destination, value)
