"""What dispatch derives from its rows: bindings, their gates, and who holds and waits at them."""

from __future__ import annotations

from dataclasses import dataclass, field

from streams.core import binding_drain
from streams.core.flow import Flow, flow_of
from streams.core.gate.slots import Slots
from streams.core.state import State


@dataclass(slots=True)
class DispatchIndex(binding_drain.Bindings):
    """Bindings in force, with their flow control and its slots."""

    slots: Slots = field(default_factory=Slots)
    flows: dict[str, Flow] = field(default_factory=dict[str, Flow])

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
