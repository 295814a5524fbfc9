"""Who holds and who waits at each gate key: derived from the rows of live dispatches.

Nothing here is counted apart from the dispatches themselves, so a slot cannot leak: a dispatch that
ends is no longer in the rows, and a reload finds exactly those that live.

Invariants: a dispatch waits at one gate key at most; holders and waiters are those whose rows say
so; waiters leave in (place, arrival) order; a heap is at most twice as long as there are waiters,
plus a constant.

Source: DESIGN law 7; decision "A singleton or concurrency slot belongs to the dispatch row".
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from streams.core.wire import RowDispatch

_STALE_ALLOWED = 64  # below this, rebuilding a heap costs more than its stale entries

GateKey = tuple[str, str, str]
"""Gate, binding key, key value."""

SLOT_GATES = ("singleton", "concurrency")
"""Gates whose slot a dispatch holds until it ends, in the order in which it takes them."""


def gate_key(row: RowDispatch, gate: str, /) -> GateKey:
    """The gate key that a dispatch meets at a gate."""
    return gate, row["binding_key"], row["keys"].get(gate, "_global")


def place_of(row: RowDispatch, gate: str, /) -> int:
    """Return a waiter's place in the queue of a gate key; equal ones go by arrival.

    At a throttle, who came to it first goes first; what arrived earlier may come to it later, held
    up by its predicate or its batch.  Elsewhere it is the priority's rank.
    """
    return row["since_ms"] if gate == "throttle" else row["rank"]


@dataclass(slots=True)
class _Waiting:
    """Waiters of one gate key: a heap whose stale entries are told by `live`."""

    heap: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    live: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    bytes: int = 0

    def trim(self) -> None:
        """Rebuild the heap once most of it is stale: a queue that never empties must not grow."""
        if len(self.heap) > 2 * len(self.live) + _STALE_ALLOWED:
            self.heap = [(*place, dispatch_id) for dispatch_id, place in self.live.items()]
            heapq.heapify(self.heap)


@dataclass(slots=True)
class Slots:
    """Holders and waiters by gate key."""

    holders: dict[GateKey, dict[str, None]] = field(default_factory=dict[GateKey, dict[str, None]])
    waiting: dict[GateKey, _Waiting] = field(default_factory=dict[GateKey, _Waiting])

    def add(self, row: RowDispatch, /) -> None:
        """Enter a live dispatch's row, at load or when it is stored."""
        for gate in row["holds"]:
            self.hold(gate_key(row, gate), row["dispatch_id"])
        gate = row["gate"]
        if row["status"] == "gated" and gate is not None:
            key = gate_key(row, gate)
            at, size = place_of(row, gate), row["body_bytes"]
            self.wait(key, row["dispatch_id"], at, row["arrival"], size)

    def hold(self, key: GateKey, dispatch_id: str, /) -> None:
        """Note a holder."""
        holders = self.holders.get(key)
        if holders is None:
            self.holders[key] = {dispatch_id: None}
        else:
            holders[dispatch_id] = None

    def release(self, key: GateKey, dispatch_id: str, /) -> bool:
        """Note that a holder let go; whether it held."""
        held = self.holders.get(key)
        if held is None or dispatch_id not in held:
            return False
        del held[dispatch_id]
        if not held:
            del self.holders[key]
        return True

    def is_idle(self, key: GateKey, /) -> bool:
        """Whether nobody holds a slot of the gate key, and nobody waits for one."""
        return key not in self.holders and key not in self.waiting

    def held(self, key: GateKey, /) -> int:
        """How many dispatches hold a slot of the gate key."""
        return len(self.holders.get(key, ()))

    def wait(
        self, key: GateKey, dispatch_id: str, place: int, arrival: int, size: int = 0, /
    ) -> None:
        """Note a waiter; `size` is what it adds to `waiting_bytes`."""
        waiting = self.waiting.setdefault(key, _Waiting())
        waiting.live[dispatch_id] = (place, arrival)
        if size:
            waiting.sizes[dispatch_id] = size
            waiting.bytes += size
        heapq.heappush(waiting.heap, (place, arrival, dispatch_id))

    def leave(self, key: GateKey, dispatch_id: str, /) -> None:
        """Note that a waiter waits no more."""
        waiting = self.waiting.get(key)
        if waiting is None or waiting.live.pop(dispatch_id, None) is None:
            return
        waiting.bytes -= waiting.sizes.pop(dispatch_id, 0)
        if not waiting.live:
            del self.waiting[key]
        else:
            waiting.trim()

    def waiters(self, key: GateKey, /) -> int:
        """How many dispatches wait at the gate key."""
        waiting = self.waiting.get(key)
        return 0 if waiting is None else len(waiting.live)

    def waiting_bytes(self, key: GateKey, /) -> int:
        """How many bytes those hold together who wait at the gate key."""
        waiting = self.waiting.get(key)
        return 0 if waiting is None else waiting.bytes

    def first(self, key: GateKey, /) -> str | None:
        """The waiter whose turn it is, or None."""
        waiting = self.waiting.get(key)
        if waiting is None:
            return None
        while True:
            place, arrival, dispatch_id = waiting.heap[0]
            if waiting.live.get(dispatch_id) == (place, arrival):
                return dispatch_id
            heapq.heappop(waiting.heap)

    def in_order(self, key: GateKey, /) -> list[str]:
        """Every waiter of the gate key, first to last."""
        waiting = self.waiting.get(key)
        if waiting is None:
            return []
        return sorted(waiting.live, key=lambda dispatch_id: waiting.live[dispatch_id])
