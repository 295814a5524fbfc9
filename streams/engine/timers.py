"""The armed timers of one row type: which row is due first, without reading rows.

`due` holds every row of the type with its armed due time, None where no timer is armed.  The heap
orders the armed ones; an entry that disagrees with `due` is stale and ignored, so a queue that
lived through many changes and one that was just rebuilt from the rows behave alike.

Invariants: every armed row has an entry that agrees with it; a row fires once each time it is
armed; the heap is at most twice as long as there are rows, plus a constant.

Source: DESIGN law 2 "Time is data"; FINDINGS 12.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

_STALE_ALLOWED = 1_024  # below this, rebuilding the heap costs more than its stale entries


class Timers:
    """Rows of one type by due time, in (due, key) order."""

    __slots__ = ("due", "due_field", "heap", "ticking")

    def __init__(self, due_field: str, *, ticking: bool) -> None:
        self.due_field = due_field
        self.ticking = ticking
        self.due: dict[str, int | None] = {}
        self.heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """How many rows of the type there are, armed or not."""
        return len(self.due)

    def load(self, rows: Iterable[tuple[str, int | None]]) -> None:
        """Start from the rows of a store: (key, due time) each; O(rows)."""
        self.due = dict(rows)
        self._rebuild()

    def set(self, key: str, due_ms: int | None) -> None:
        """Note that the row under `key` is stored, due then; None disarms it."""
        if due_ms is not None and self.due.get(key) != due_ms:
            heapq.heappush(self.heap, (due_ms, key))
            if len(self.heap) > 2 * len(self.due) + _STALE_ALLOWED:
                self.due[key] = due_ms
                self._rebuild()
                return
        self.due[key] = due_ms

    def drop(self, key: str) -> None:
        """Note that the row under `key` is gone."""
        self.due.pop(key, None)

    def first(self) -> tuple[int, str] | None:
        """Due time and key of the armed row that is due first, or None."""
        heap, due = self.heap, self.due
        while heap:
            entry = heap[0]
            if due.get(entry[1]) == entry[0]:
                return entry
            heapq.heappop(heap)
        return None

    def disarm_first(self) -> None:
        """Take the timer that `first` has just named; its row stays."""
        _, key = heapq.heappop(self.heap)
        self.due[key] = None

    def _rebuild(self) -> None:
        self.heap = [(due_ms, key) for key, due_ms in self.due.items() if due_ms is not None]
        heapq.heapify(self.heap)
