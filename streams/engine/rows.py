"""The rows of one partition as a fold sees them: an overlay of this batch over the committed store, and the timers.

Timers are rows: a row type with a due field arms a timer whenever such a row is stored.  The heaps are derived: they are
rebuilt from rows after loading, and an entry whose row has moved on is stale and ignored, so a heap that still holds
stale entries and one that was just rebuilt behave alike.

Invariants: `armed[prefix]` equals the number of rows of that timer prefix; `changes()` lists each dirty key once.

Source: DESIGN law 2 "Time is data"; FINDINGS 12.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

from streams.codec import Codec
from streams.engine.bound import BoundStage, RowCodec
from streams.engine.store import RowChange, Store

_ABSENT: Any = object()


def prefix_of(key: str) -> str:
    """The row prefix of a key: what stands before its first colon."""
    return key.partition(":")[0]


class PartitionRows:
    """Implements `streams.core.state.Rows` over a `Store`."""

    __slots__ = ("_cache", "_codec", "_current", "_heaps", "_lazy", "_types", "armed", "store")

    def __init__(self, stage: BoundStage, store: Store) -> None:
        """Read the timers from `store`; O(rows) only when the stage has timer rows."""
        self._types: dict[str, RowCodec] = stage.rows
        self._codec: Codec = stage.codec
        self.store = store
        self._current: dict[str, Any] = {}
        self._cache: dict[str, Any] = {}
        self._heaps: dict[str, list[tuple[int, str]]] = {}
        self.armed: dict[str, int] = {}
        self._lazy = tuple(t.prefix for t in self._types.values() if t.due_field and not t.ticking)
        for row_type in self._types.values():
            if row_type.due_field:
                self._load_timers(row_type, row_type.due_field)

    def _load_timers(self, row_type: RowCodec, due_field: str) -> None:
        decode = self._codec.decode
        marker = f"{row_type.prefix}:".encode()
        heap: list[tuple[int, str]] = []
        rows = 0
        for key, value in self.store.items():
            if key.startswith(marker):
                rows += 1
                due = decode(value)[1][due_field]
                if due is not None:
                    heap.append((due, key.decode()))
        heapq.heapify(heap)
        self._heaps[row_type.prefix] = heap
        self.armed[row_type.prefix] = rows

    # ------------------------------------------------------------------ what folds call
    def get(self, key: str, /) -> Any:
        """See `Rows.get`."""
        value = self._current.get(key, _ABSENT)
        if value is not _ABSENT:
            return value
        value = self._cache.get(key, _ABSENT)
        if value is not _ABSENT:
            return value
        raw = self.store.get(key.encode())
        value = None if raw is None else self._codec.decode(raw)[1]
        self._cache[key] = value
        return value

    def put(self, key: str, value: Mapping[str, Any], /) -> None:
        """See `Rows.put`; KeyError when the prefix is not declared."""
        row_type = self._types[prefix_of(key)]
        if row_type.due_field is not None:
            if self.get(key) is None:
                self.armed[row_type.prefix] += 1
            due = value[row_type.due_field]
            if due is not None:
                heapq.heappush(self._heaps[row_type.prefix], (due, key))
        self._current[key] = value

    def delete(self, key: str, /) -> None:
        """See `Rows.delete`."""
        row_type = self._types[prefix_of(key)]
        if row_type.due_field is not None and self.get(key) is not None:
            self.armed[row_type.prefix] -= 1
        self._current[key] = None

    def scan(self, prefix: str, /) -> Iterator[tuple[str, Any]]:
        """See `Rows.scan`."""
        found: dict[str, Any] = {
            key.decode(): None for key, _ in self.store.prefixed(prefix.encode())
        }
        found.update({key: None for key in self._current if key.startswith(prefix)})
        for key in sorted(found):
            value = self.get(key)
            if value is not None:
                yield key, value

    def count(self, prefix: str, /) -> int:
        """See `Rows.count`: the exact number of rows of a timer prefix."""
        return self.armed[prefix]

    def oldest(self, prefix: str, /) -> str | None:
        """See `Rows.oldest`."""
        entry = self._head(prefix)
        return None if entry is None else entry[1]

    # ------------------------------------------------------------------ what the engine calls
    def _head(self, prefix: str) -> tuple[int, str] | None:
        """The first live timer of a prefix; stale entries before it are dropped."""
        heap = self._heaps[prefix]
        due_field = self._types[prefix].due_field
        while heap:
            due, key = heap[0]
            row = self.get(key)
            if row is not None and row[due_field] == due:
                return due, key
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ms: int, *, lazy: bool) -> tuple[str, Any] | None:
        """Take the first timer that is due, in (due, key) order, or None.

        The caller must change or delete the row; `settle` would otherwise see the same timer again only after a reload.
        """
        best: tuple[int, str] | None = None
        best_prefix = ""
        for prefix in self._heaps:
            if (prefix in self._lazy) is not lazy:
                continue
            heap = self._heaps[prefix]
            if not heap or heap[0][0] > now_ms:
                continue
            entry = self._head(prefix)
            if entry is not None and entry[0] <= now_ms and (best is None or entry < best):
                best, best_prefix = entry, prefix
        if best is None:
            return None
        heapq.heappop(self._heaps[best_prefix])
        return best[1], self.get(best[1])

    def next_tick_ms(self) -> int | None:
        """Due time of the first live ticking timer; None when nothing waits."""
        heads = [
            head[0]
            for prefix in self._heaps
            if prefix not in self._lazy and (head := self._head(prefix)) is not None
        ]
        return min(heads, default=None)

    def changes(self) -> list[tuple[RowChange, bytes | None]]:
        """The dirty rows of this batch, encoded, each with its committed value; unchanged rows are left out."""
        changed: list[tuple[RowChange, bytes | None]] = []
        get, types = self.store.get, self._types
        for key, value in self._current.items():
            raw_key = key.encode()
            before = get(raw_key)
            after = None if value is None else types[prefix_of(key)].encode(value)
            if before != after:
                changed.append(((raw_key, after), before))
        return changed

    def settle(self) -> None:
        """Forget the overlay: its changes are in the store now."""
        self._current = {}
        self._cache = {}
