"""What dispatch derives from its rows: bindings, their gates, and who holds and waits at them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from streams.core import binding_drain
from streams.core.flow import Flow, flow_of
from streams.core.gate.slots import Slots
from streams.core.state import State
from streams.core.wire import RowDispatch


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
    live: dict[tuple[str, str], list[str]] | None = None
    """Live dispatches by binding key and event id, once somebody asked for one of them."""

    def live_of(self, state: State, binding_key: str, event_id: str, /) -> tuple[str, ...]:
        """Return the live dispatches of an event by a binding; O(live) the first time."""
        if self.live is None:
            self.live = {}
            for _, row in state.rows.scan("d:"):
                self.entered(row)
        return tuple(self.live.get((binding_key, event_id), ()))

    def entered(self, row: RowDispatch, /) -> None:
        """Note a dispatch that became live."""
        if self.live is not None:
            key = (row["binding_key"], row["event_id"])
            self.live.setdefault(key, []).append(row["dispatch_id"])

    def left(self, row: RowDispatch, /) -> None:
        """Note one that ended."""
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


def build_index(state: State, /) -> DispatchIndex:
    """Derive the index from the rows; reads live dispatches only when some binding has gates."""
    index = DispatchIndex()
    binding_drain.fill(index, state)
    if any(index.flow(key).declared for key in index.bindings):
        for _, row in state.rows.scan("d:"):
            index.slots.add(row)
    return index
