"""What time and other partitions bring to a circuit: a probe, an end, parked dispatches that go on.

Source: DESIGN 7, A12/A13 and "Circuits, predicate breakers and budgets".
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import bounds, circuit, parking
from streams.core.circuit import SOON_MS
from streams.core.destination import destination_of, parked_key
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_moves import (
    dead_letter,
    dispatch_of,
    follow,
    invoke_again,
    reenter,
    row_key,
)
from streams.core.dispatch_records import attempt_started
from streams.core.gate import admission
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, State
from streams.core.wire import CircuitChanged, CircuitEpisode, RowCircuit, RowDispatch

RELEASED_MAX = 100
"""Parked dispatches that go on at once; the next ones follow a moment later."""

CANDIDATES_MAX = 100
"""Parked dispatches that are looked at for one whose slots are free."""

BUSY_MS = 1_000
"""When to look again if none of them could have its slots."""

DESTINATION_CHARS_MAX = bounds.ID_CHARS_MAX + 1 + bounds.TEXT_CHARS_MAX


# ---------------------------------------------------------------------- time
def on_circuit_due(state: State, row: RowCircuit, /) -> Iterable[Output]:
    """Probe an episode of ours, or let parked dispatches go on."""
    if row["own"] is not None and row["probe"] is None:
        return _probe(state, row, row["own"])
    if not row["episodes"]:
        return _release(state, row)
    circuit.keep(state, {**row, "due_ms": None})
    return ()


def on_parked_too_long(state: State, row: RowDispatch, /) -> Iterable[Output]:
    """End a dispatch whose destination did not come back in time."""
    index: DispatchIndex = state.index
    minutes = index.flow(row["binding_key"]).circuit_max_park_ms // 60_000
    error = f"circuit open: it was parked for {minutes} min"
    return dead_letter(state, row, error, "unknown", "circuit_open")


def _probe(state: State, row: RowCircuit, own: str) -> Iterable[Output]:
    index: DispatchIndex = state.index
    destination = row["destination"]
    parked = index.slots.in_order(parked_key(destination))
    if not parked:
        return _pass_on(state, row, own)
    for dispatch_id in parked[:CANDIDATES_MAX]:
        found: RowDispatch | None = state.rows.get(row_key(dispatch_id))
        assert found is not None, "a parked dispatch is live"
        flow = index.flow(found["binding_key"])
        if all(admission.is_free(index.slots, flow, found, gate) for gate in flow.slots):
            probed: RowCircuit = {**row, "probe": dispatch_id, "passes": 0, "due_ms": None}
            circuit.keep(state, probed)
            begun = _begin(state, found, destination)
            return [circuit.changed(state, probed, "half_open"), *begun]
    circuit.keep(state, {**row, "due_ms": state.now_ms + BUSY_MS})
    return ()


def _begin(state: State, parked: RowDispatch, destination: str) -> Iterable[Output]:
    """Start the attempt that probes a circuit: it takes slots that are free past all who wait."""
    index: DispatchIndex = state.index
    flow = index.flow(parked["binding_key"])
    row = parking.unpark(state, parked, destination)
    outputs: list[Output] = []
    for gate in flow.slots:
        further = follow(state, row, admission.acquire(index.slots, flow, row, gate), outputs)
        assert further is not None, "a free slot lets its dispatch go on"
        row = further
    return [*outputs, *attempt_started(dispatch_of(state, row)), invoke_again(state, row)]


def _pass_on(state: State, row: RowCircuit, own: str) -> Iterable[Output]:
    """Ask the next partition for a probe; when all were asked, let the next attempt be one."""
    destination = row["destination"]
    episode = next(each for each in row["episodes"] if each["id"] == own)
    others = [each for each in row["episodes"] if each["id"] != own]
    passes = row["passes"] + 1
    if passes >= state.partitions:
        told = circuit.told(state, destination, episode, "untested")
        return [*told, *_ends(state, row, others, circuit.FAILURES_MAX - 1)]
    circuit.keep(state, {**row, "own": None, "passes": 0, "due_ms": None})
    neighbour = (state.partition + 1) % state.partitions
    return [circuit.word(state, destination, episode, "probe", neighbour, passes)]


def _ends(
    state: State, row: RowCircuit, episodes: list[CircuitEpisode], failures: int
) -> list[Output]:
    """Store a row without the episodes that ended.

    `failures` count only where a binding goes to that destination.
    """
    index: DispatchIndex = state.index
    if not any(destination_of(each) == row["destination"] for each in index.bindings.values()):
        failures = 0
    own = row["own"] if any(each["id"] == row["own"] for each in episodes) else None
    after: RowCircuit = {**row, "episodes": episodes, "own": own, "failures": failures}
    if own is None:
        after = {**after, "probe": None, "passes": 0}
    if row["due_ms"] is not None and own is None and row["episodes"]:
        after = {**after, "due_ms": None}
    return circuit.settled(state, row, after)


def _release(state: State, row: RowCircuit) -> Iterable[Output]:
    index: DispatchIndex = state.index
    destination = row["destination"]
    parked = index.slots.in_order(parked_key(destination))
    due_ms = state.now_ms + SOON_MS if len(parked) > RELEASED_MAX else None
    circuit.keep(state, {**row, "due_ms": due_ms})
    outputs: list[Output] = []
    for dispatch_id in parked[:RELEASED_MAX]:
        found: RowDispatch | None = state.rows.get(row_key(dispatch_id))
        assert found is not None, "a parked dispatch is live"
        outputs += reenter(state, parking.unpark(state, found, destination))
    return outputs


# ---------------------------------------------------------------------- words of other partitions
def on_circuit_changed(state: State, record: Record, /) -> Answer:
    """Follow another partition's word on a circuit."""
    word: CircuitChanged = record.value
    destination = word["destination"]
    problem = bounds.text_problem(
        (
            ("destination", destination, DESTINATION_CHARS_MAX),
            ("episode", word["episode"], bounds.ID_CHARS_MAX),
        )
    )
    if problem is not None or word["partition"] == state.partition:
        return Rejection("DSP-007", problem or "a partition's word to itself")
    row = circuit.circuit_of(state, destination) or circuit.fresh(destination)
    episode: CircuitEpisode = {"id": word["episode"], "until_ms": word["until_ms"]}
    others = [each for each in row["episodes"] if each["id"] != episode["id"]]
    if len(others) >= state.partitions:
        return Rejection("DSP-007", "an episode too many: a partition has one at most")
    match word["change"]:
        case "opened":
            return _opened_elsewhere(state, row, [*others, episode])
        case "probe":
            return _asked_to_probe(state, row, others, episode, word["passes"])
        case "closed":
            return _ends(state, row, others, 0)
        case "untested":
            return _ends(state, row, others, circuit.FAILURES_MAX - 1)
        case "unknown":
            return Rejection("DSP-007", "a word on a circuit that this release does not know")


def _opened_elsewhere(
    state: State, row: RowCircuit, episodes: list[CircuitEpisode]
) -> Iterable[Output]:
    due_ms = row["due_ms"] if row["own"] is not None else None
    circuit.keep(state, {**row, "episodes": episodes, "due_ms": due_ms})
    return ()


def _asked_to_probe(
    state: State,
    row: RowCircuit,
    others: list[CircuitEpisode],
    episode: CircuitEpisode,
    passes: int,
) -> Iterable[Output]:
    if row["own"] is not None and row["own"] != episode["id"]:
        told = circuit.told(state, row["destination"], episode, "closed")
        return [*told, *_ends(state, row, others, row["failures"])]
    asked: RowCircuit = {
        **row,
        "episodes": [*others, episode],
        "own": episode["id"],
        "probe": None,
        "passes": passes,
        "due_ms": state.now_ms,
    }
    circuit.keep(state, asked)
    return ()
