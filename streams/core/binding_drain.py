"""Bindings in a dispatch partition.

They come with a revision, and end once nothing of them can arrive or is live.

| kind | binding is | answer |
|---|---|---|
| `revision_published`, adds it | any | in force, not draining |
| `revision_published`, drains it | in force | draining; no inbox partition has reached it yet |
| `revision_reached` by partition p | draining | p is noted |
| all partitions noted, nothing live | draining | `binding_ended` to the registry; forgotten here |

Invariant: a binding that is forgotten has no live dispatch in this partition, and no inbox
partition can still match it.

Source: DESIGN law 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from streams.core import revision, worker_queue
from streams.core.record import Output, Record
from streams.core.state import Answer, State
from streams.core.wire import (
    BindingDefinition,
    BindingEnded,
    RevisionPublished,
    RevisionReached,
    RowDispatchBinding,
)

REGISTRY = "triggers.registry"


@dataclass(slots=True)
class Bindings:
    """Derived from rows: definitions by key, and how many dispatches of a draining one are live.

    Those of bindings that do not drain are not counted: nobody asks.
    """

    bindings: dict[str, BindingDefinition] = field(default_factory=dict[str, BindingDefinition])
    draining: dict[str, int] = field(default_factory=dict[str, int])

    def opened(self, binding_key: str) -> None:
        """Count a dispatch of the binding that became live."""
        if binding_key in self.draining:
            self.draining[binding_key] += 1

    def closed(self, binding_key: str) -> None:
        """Count one of the binding that ended."""
        if binding_key in self.draining:
            self.draining[binding_key] -= 1

    def forgotten(self, state: State, binding: BindingDefinition) -> None:
        """Forget what only the binding that ended needed."""


def fill(index: Bindings, state: State, /) -> None:
    """Read bindings from rows; counts live dispatches (O(rows)) only when a binding drains."""
    for _, row in state.rows.scan("b:"):
        binding_row: RowDispatchBinding = row
        key = binding_row["binding"]["binding_key"]
        index.bindings[key] = binding_row["binding"]
        if binding_row["drained_at"] is not None:
            index.draining[key] = 0
    if index.draining:
        _count_live(state, index, frozenset(index.draining))


def _count_live(state: State, index: Bindings, keys: frozenset[str]) -> None:
    for _, row in state.rows.scan("d:"):
        if row["binding_key"] in keys:
            index.draining[row["binding_key"]] += 1


def _row_key(binding_key: str) -> str:
    return f"b:{binding_key}"


def on_revision_published(state: State, record: Record, /) -> Answer:
    """Take a revision: new bindings enter force, drained ones begin to drain."""
    published: RevisionPublished = record.value
    if not revision.advances(state, published):
        return ()
    index: Bindings = state.index
    newly_draining: set[str] = set()
    for binding_key in published["drained"]:
        row: RowDispatchBinding | None = state.rows.get(_row_key(binding_key))
        if row is not None and row["drained_at"] is None:
            drained: RowDispatchBinding = {
                **row,
                "drained_at": published["revision"],
                "reached": [],
            }
            state.rows.put(_row_key(binding_key), drained)
            index.draining[binding_key] = 0
            newly_draining.add(binding_key)
    if newly_draining:
        _count_live(state, index, frozenset(newly_draining))
    for binding in published["added"]:
        fresh: RowDispatchBinding = {
            "binding": binding,
            "drained_at": None,
            "reached": [],
            "ended": False,
        }
        state.rows.put(_row_key(binding["binding_key"]), fresh)
        index.bindings[binding["binding_key"]] = binding
        index.draining.pop(binding["binding_key"], None)
    if state.partition:
        return ()
    return [worker_queue.seen(each) for each in published["added"] if _is_queued(each)]


def _is_queued(binding: BindingDefinition) -> bool:
    return binding["handler_kind"] == "worker"


def on_revision_reached(state: State, record: Record, /) -> Answer:
    """Note that an inbox partition will send nothing older than a revision."""
    word: RevisionReached = record.value
    outputs: list[Output] = []
    index: Bindings = state.index
    for binding_key in sorted(index.draining):
        row: RowDispatchBinding | None = state.rows.get(_row_key(binding_key))
        assert row is not None, "a draining binding has a row"
        drained_at = row["drained_at"]
        assert drained_at is not None, "a draining binding knows its revision"
        if drained_at > word["revision"] or word["inbox_partition"] in row["reached"]:
            continue
        noted: RowDispatchBinding = {
            **row,
            "reached": sorted([*row["reached"], word["inbox_partition"]]),
        }
        state.rows.put(_row_key(binding_key), noted)
        outputs += ended_if_idle(state, binding_key)
    return outputs


def ended_if_idle(state: State, binding_key: str, /) -> Iterable[Output]:
    """Say `binding_ended` if it drains, every inbox partition moved on, and nothing is live."""
    index: Bindings = state.index
    if index.draining.get(binding_key) != 0:
        return ()
    row: RowDispatchBinding | None = state.rows.get(_row_key(binding_key))
    assert row is not None, "a draining binding has a row"
    drained_at = row["drained_at"]
    assert drained_at is not None, "a draining binding knows its revision"
    if len(row["reached"]) < state.partitions:
        return ()
    state.rows.delete(_row_key(binding_key))
    del index.draining[binding_key]
    index.forgotten(state, index.bindings.pop(binding_key))
    ended: BindingEnded = {
        "binding_key": binding_key,
        "revision": drained_at,
        "partition": state.partition,
        "partitions": state.partitions,
    }
    return (Output(REGISTRY, "binding_ended", row["binding"]["namespace"], ended, partition=0),)
