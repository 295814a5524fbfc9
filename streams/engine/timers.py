"""The armed timers of one row type: which row is due first, without reading rows.

`due` holds every row of the type with its armed due time, None where no timer is armed.  What is
due soon stands in a heap; what is due later waits in buckets of `_BUCKET_MS`, whose keys cost a
pointer each and are put in order only when their time comes.  An entry that disagrees with `due` is
stale and ignored, so a queue that lived through many changes and one that was just rebuilt from the
rows behave alike.  Row keys are the bytes that the store holds, so that a key is kept once; as
UTF-8 they sort as the text does.

Invariants: every armed row has an entry that agrees with it; a row fires once each time it is
armed; the heap is empty only if there are no entries; there are at most twice as many entries as
rows, plus a constant.

Source: DESIGN law 2 "Time is data"; FINDINGS 12.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

_STALE_ALLOWED = 1_024  # below this, rebuilding costs more than the stale entries
_BUCKET_MS: Final = 8_192
_FEW: Final = 64  # entries of the heap that may go back to a bucket for one that is due earlier


class Timers:
    """Rows of one type by due time, in (due, key) order."""

    __slots__ = (
        "_buckets",
        "_heaped_to",
        "_waiting",
        "due",
        "due_field",
        "entries",
        "heap",
        "ticking",
    )

    def __init__(self, due_field: str, *, ticking: bool) -> None:
        self.due_field = due_field
        self.ticking = ticking
        self.due: dict[bytes, int | None] = {}
        self.heap: list[tuple[int, bytes]] = []
        self._heaped_to = 0  # what is due before this stands in the heap
        self._buckets: dict[int, list[bytes]] = {}
        self._waiting: list[int] = []  # a heap of the buckets' numbers
        self.entries = 0

    def __len__(self) -> int:
        """How many rows of the type there are, armed or not."""
        return len(self.due)

    def load(self, rows: Iterable[tuple[bytes, int | None]]) -> None:
        """Start from the rows of a store: (key, due time) each; O(rows)."""
        self.due = dict(rows)
        self._rebuild()

    def set(self, key: bytes, due_ms: int | None) -> None:
        """Note that the row under `key` is stored, due then; None disarms it."""
        armed_ms = self.due.get(key)
        self.due[key] = due_ms
        if due_ms is None or armed_ms == due_ms or self._awaits(armed_ms, due_ms):
            return
        if self.entries > 2 * len(self.due) + _STALE_ALLOWED:
            self._rebuild()
            return
        self._add(key, due_ms)

    def drop(self, key: bytes) -> None:
        """Note that the row under `key` is gone."""
        self.due.pop(key, None)

    def first(self) -> tuple[int, bytes] | None:
        """Due time and key of the armed row that is due first, or None."""
        heap, due = self.heap, self.due
        while heap:
            entry = heap[0]
            if due.get(entry[1]) == entry[0]:
                return entry
            self._take_first()
            heap = self.heap
        return None

    def disarm_first(self) -> None:
        """Take the timer that `first` has just named; its row stays."""
        self.due[self.heap[0][1]] = None
        self._take_first()

    def _add(self, key: bytes, due_ms: int) -> None:
        self.entries += 1
        if due_ms < self._heaped_to:
            if self._is_far_before(due_ms):
                for late_ms, late in self.heap:
                    self._await(late, late_ms)
                self._heap_alone(key, due_ms)
            else:
                heapq.heappush(self.heap, (due_ms, key))
        elif not self.heap:
            self._heap_alone(key, due_ms)
        else:
            self._await(key, due_ms)

    def _awaits(self, armed_ms: int | None, due_ms: int) -> bool:
        """Whether a row armed for `armed_ms` stands in the very bucket that `due_ms` belongs to."""
        return (
            armed_ms is not None
            and due_ms >= self._heaped_to
            and armed_ms // _BUCKET_MS == due_ms // _BUCKET_MS
        )

    def _is_far_before(self, due_ms: int) -> bool:
        """Whether the few in the heap are due buckets later: else all would pile up there."""
        heap = self.heap
        return 0 < len(heap) <= _FEW and due_ms // _BUCKET_MS < heap[0][0] // _BUCKET_MS

    def _heap_alone(self, key: bytes, due_ms: int) -> None:
        self._heaped_to = (due_ms // _BUCKET_MS + 1) * _BUCKET_MS
        self.heap = [(due_ms, key)]

    def _await(self, key: bytes, due_ms: int) -> None:
        number = due_ms // _BUCKET_MS
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = [key]
            heapq.heappush(self._waiting, number)
        else:
            bucket.append(key)

    def _take_first(self) -> None:
        """Drop the heap's first entry; the next bucket with armed rows fills an empty heap."""
        heapq.heappop(self.heap)
        self.entries -= 1
        while not self.heap and self._waiting:
            self._open(heapq.heappop(self._waiting))

    def _open(self, number: int) -> None:
        keys = self._buckets.pop(number)
        due, start = self.due, number * _BUCKET_MS
        end = self._heaped_to = start + _BUCKET_MS
        self.heap = [
            (due_ms, key)
            for key in set(keys)
            if (due_ms := due.get(key)) is not None and start <= due_ms < end
        ]
        heapq.heapify(self.heap)
        self.entries += len(self.heap) - len(keys)

    def _rebuild(self) -> None:
        self.heap, self._buckets, self._waiting, self._heaped_to = [], {}, [], 0
        armed = [(due_ms, key) for key, due_ms in self.due.items() if due_ms is not None]
        self.entries = len(armed)
        if not armed:
            return
        self._heaped_to = (min(armed)[0] // _BUCKET_MS + 1) * _BUCKET_MS
        for due_ms, key in armed:
            if due_ms < self._heaped_to:
                self.heap.append((due_ms, key))
            else:
                self._await(key, due_ms)
        heapq.heapify(self.heap)
