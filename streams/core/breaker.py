"""The breaker of a predicate: one that keeps failing is left alone for a while.

| happens | answer |
|---|---|
| an evaluation fails, the third in a row | open for five minutes from its start; all are told |
| the time is over | the next one is evaluated; if it fails, open again at once |
| an evaluation gives a verdict | closed, failures forgotten |

While it is open, every event's verdict is no.

Source: SEMANTICS 2.6; DESIGN 7, "Circuits, predicate breakers and budgets".
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import bounds
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_records import LIFECYCLE
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, State
from streams.core.wire import (
    BreakerOpened,
    CircuitState,
    LifecycleCircuitChanged,
    RowPredicate,
)

FAILURES_MAX = 3
"""Evaluations that fail in a row, with which the breaker opens."""

OPEN_MS = 300_000
"""How long a predicate is left alone."""

SAMPLES_MAX = 100
"""Evaluations whose costs say what the next one is expected to cost."""

DISPATCHES = "trigger.dispatches"


def row_key(binding_key: str, /) -> str:
    """Key of a predicate's row."""
    return f"p:{binding_key}"


def _row_of(state: State, binding_key: str) -> RowPredicate:
    row: RowPredicate | None = state.rows.get(row_key(binding_key))
    if row is not None:
        return row
    return {"binding_key": binding_key, "failures": 0, "open_until_ms": 0, "samples": []}


def _keep(state: State, row: RowPredicate) -> None:
    key = row_key(row["binding_key"])
    if row["failures"] or row["samples"]:
        state.rows.put(key, row)
    elif state.rows.get(key) is not None:
        state.rows.delete(key)


def is_open(state: State, binding_key: str, /) -> bool:
    """Whether a binding's predicate is left alone now."""
    row: RowPredicate | None = state.rows.get(row_key(binding_key))
    return row is not None and row["open_until_ms"] > state.now_ms


def expected_micros(state: State, binding_key: str, default: int, /) -> int:
    """Return what an evaluation costs on the average of the last ones, rounded up."""
    samples = _row_of(state, binding_key)["samples"]
    return -(-sum(samples) // len(samples)) if samples else default


def sampled(state: State, binding_key: str, micros: int, /) -> None:
    """Remember what an evaluation cost."""
    row = _row_of(state, binding_key)
    _keep(state, {**row, "samples": [*row["samples"][1 - SAMPLES_MAX :], micros]})


def succeeded(state: State, binding_key: str, /) -> Iterable[Output]:
    """Note a verdict: what failed before is forgotten."""
    row = _row_of(state, binding_key)
    if not row["failures"]:
        return ()
    _keep(state, {**row, "failures": 0, "open_until_ms": 0})
    if not row["open_until_ms"]:
        return ()
    return (_changed(state, row, "closed", 0),)


def failed(state: State, binding_key: str, took_ms: int, /) -> Iterable[Output]:
    """Count an evaluation that failed; `took_ms` is how long ago it started."""
    row = _row_of(state, binding_key)
    failures = row["failures"] + 1
    if failures < FAILURES_MAX:
        _keep(state, {**row, "failures": failures})
        return ()
    until_ms = state.now_ms - min(max(took_ms, 0), OPEN_MS) + OPEN_MS
    until_ms = max(until_ms, row["open_until_ms"])
    _keep(state, {**row, "failures": failures, "open_until_ms": until_ms})
    value: BreakerOpened = {
        "binding_key": binding_key,
        "partition": state.partition,
        "failures": failures,
        "until_ms": until_ms,
    }
    key = f"breaker:{state.partition}"
    return (
        _changed(state, {**row, "failures": failures}, "open", until_ms),
        *(
            Output(DISPATCHES, "breaker_opened", key, value, partition=partition)
            for partition in range(state.partitions)
            if partition != state.partition
        ),
    )


def on_breaker_opened(state: State, record: Record, /) -> Answer:
    """Leave a predicate alone that fails in another partition."""
    word: BreakerOpened = record.value
    problem = bounds.text_problem((("binding_key", word["binding_key"], bounds.ID_CHARS_MAX),))
    if problem is not None or word["partition"] == state.partition:
        return Rejection("DSP-009", problem or "a partition's word to itself")
    index: DispatchIndex = state.index
    if word["binding_key"] not in index.bindings:
        return ()  # it ended here
    row = _row_of(state, word["binding_key"])
    opened: RowPredicate = {
        **row,
        "failures": max(row["failures"], FAILURES_MAX),
        "open_until_ms": max(row["open_until_ms"], word["until_ms"]),
    }
    _keep(state, opened)
    return ()


def _changed(state: State, row: RowPredicate, circuit: CircuitState, until_ms: int) -> Output:
    destination = f"predicate:{row['binding_key']}"
    value: LifecycleCircuitChanged = {
        "destination": destination,
        "state": circuit,
        "partition": state.partition,
        "failures": row["failures"],
        "until_ms": until_ms or None,
        "parked": 0,
    }
    return Output(LIFECYCLE, "CircuitChanged", destination, value)
