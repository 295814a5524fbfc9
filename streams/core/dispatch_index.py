"""What dispatch derives from its rows: bindings, their gates, and who holds and waits at them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from streams.core import binding_drain
from streams.core.destination import circuit_key, destination_of, parked_key
from streams.core.flow import Flow, flow_of
from streams.core.gate.slots import Slots
from streams.core.spend import Spend
from streams.core.state import State
from streams.core.wire import BindingDefinition, RowCircuit, RowDispatch


@dataclass(slots=True)
class DispatchIndex(binding_drain.Bindings):
    """Bindings in force, with their flow control and its slots.

    `freed` are dispatches whose slots are to be given to others, `letting_on` whether somebody is
    at it; both mean something within one call only.
    """

    slots: Slots = field(default_factory=Slots)
    flows: dict[str, Flow] = field(default_factory=dict[str, Flow])
    freed: deque[RowDispatch] = field(default_factory=deque["RowDispatch"])
    letting_on: bool = False
    circuits: dict[str, RowCircuit] = field(default_factory=dict[str, RowCircuit])
    """Destinations that fail; those that work are not here."""
    reserved: dict[str, int] = field(default_factory=dict[str, int])
    """What evaluations under way are expected to cost, by budget scope, micro-dollars."""
    live: dict[tuple[str, str], list[str]] | None = None
    """Live dispatches by binding key and event id, once somebody asked for one of them."""
    accepted: dict[str, dict[str, int]] | None = None
    """When live dispatches were accepted, by trigger id and dispatch id, once somebody asked."""

    def live_of(self, state: State, binding_key: str, event_id: str, /) -> tuple[str, ...]:
        """Return the live dispatches of an event by a binding; O(live) the first time."""
        if self.live is None:
            self.live = {}
            for _, row in state.rows.scan("d:"):
                self.entered(row)
        return tuple(sorted(self.live.get((binding_key, event_id), ())))

    def oldest_accepted(self, state: State, /) -> dict[str, int]:
        """Return when each trigger's oldest live dispatch was accepted, ms since epoch.

        O(live) the first time.  Dispatches arrive in the order in which their events were accepted,
        but for moments: the first one of a trigger stands for its oldest.
        """
        if self.accepted is None:
            self.accepted = {}
            rows: list[RowDispatch] = [row for _, row in state.rows.scan("d:")]
            for row in sorted(rows, key=lambda row: row["accepted_at_ms"]):
                self._note_accepted(self.accepted, row)
        return {trigger_id: next(iter(ids.values())) for trigger_id, ids in self.accepted.items()}

    @staticmethod
    def _note_accepted(accepted: dict[str, dict[str, int]], row: RowDispatch) -> None:
        ids = accepted.setdefault(row["trigger_id"], {})
        ids[row["dispatch_id"]] = row["accepted_at_ms"]

    def entered(self, row: RowDispatch, /) -> None:
        """Note a dispatch that became live."""
        if self.accepted is not None:
            self._note_accepted(self.accepted, row)
        if self.live is not None:
            key = (row["binding_key"], row["event_id"])
            self.live.setdefault(key, []).append(row["dispatch_id"])

    def left(self, row: RowDispatch, /) -> None:
        """Note one that ended."""
        if self.accepted is not None:
            ids = self.accepted[row["trigger_id"]]
            del ids[row["dispatch_id"]]
            if not ids:
                del self.accepted[row["trigger_id"]]
        if self.live is not None:
            key = (row["binding_key"], row["event_id"])
            self.live[key].remove(row["dispatch_id"])
            if not self.live[key]:
                del self.live[key]

    def flow(self, binding_key: str, /) -> Flow:
        """The gates of a binding version; a version's definition never changes."""
        flow = self.flows.get(binding_key)
        if flow is None:
            flow = self.flows[binding_key] = flow_of(self.bindings[binding_key])
        return flow

    def reserve(self, binding: BindingDefinition, spend: Spend, micros: int, /) -> None:
        """Add to what evaluations under way are expected to cost."""
        for scope, _ in spend.scopes(binding):
            self.reserved[scope] = self.reserved.get(scope, 0) + micros
            if not self.reserved[scope]:
                del self.reserved[scope]

    def forgotten(self, state: State, binding: BindingDefinition) -> None:
        """Forget how a binding's predicate failed, and a destination that no other one has."""
        predicate = f"p:{binding['binding_key']}"
        if state.rows.get(predicate) is not None:
            state.rows.delete(predicate)
        destination = destination_of(binding)
        row = self.circuits.get(destination)
        if row is None or row["episodes"] or row["due_ms"] is not None:
            return
        if all(destination_of(each) != destination for each in self.bindings.values()):
            del self.circuits[destination]
            state.rows.delete(circuit_key(destination))


def build_index(state: State, /) -> DispatchIndex:
    """Derive the index from the rows; reads live dispatches only when some of them may wait."""
    index = DispatchIndex()
    binding_drain.fill(index, state)
    for _, row in state.rows.scan("o:"):
        index.circuits[row["destination"]] = row
    if index.circuits or any(_is_indexed(index.flow(key)) for key in index.bindings):
        for _, row in state.rows.scan("d:"):
            index.slots.add(row)
            if row["status"] == "parked":
                key = parked_key(destination_of(index.bindings[row["binding_key"]]))
                index.slots.wait(key, row["dispatch_id"], row["since_ms"], row["arrival"])
            spend = index.flow(row["binding_key"]).spend
            if spend is not None and row["reserved_micros"]:
                binding = index.bindings[row["binding_key"]]
                index.reserve(binding, spend, row["reserved_micros"])
    return index


def _is_indexed(flow: Flow) -> bool:
    """Whether live dispatches of a binding are to be looked at: they wait, or hold, or reserve."""
    return bool(flow.declared) or flow.spend is not None
