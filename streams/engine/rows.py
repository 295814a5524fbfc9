"""The rows of one partition as a fold sees them.

An overlay of this batch over the committed store, and the timers.
Timers are rows: a row type with a due field arms a timer whenever such a row is stored.

Invariants: `count` is the exact number of rows of a timer type, `standing` of those with each value
of a tallied field; `changes()` lists each dirty key once.

Source: DESIGN law 2 "Time is data", "State".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streams.codec import Codec
from streams.engine.bound import BoundStage, RowCodec
from streams.engine.recent import ABSENT, RecentRows
from streams.engine.store import RowChange, Store
from streams.engine.tally import Standing, Tally
from streams.engine.timers import Timers


def prefix_of(key: str) -> str:
    """Return the row prefix of a key: what stands before its first colon."""
    return key.partition(":")[0]


class PartitionRows:
    """Implements `streams.core.state.Rows` over a `Store`."""

    __slots__ = (
        "_codec",
        "_current",
        "_lazy",
        "_raw_keys",
        "_recent",
        "_sizes",
        "_tallies",
        "_ticking",
        "_timers",
        "_told",
        "_types",
        "store",
    )

    def __init__(self, stage: BoundStage, store: Store) -> None:
        """Read the timers from `store`; O(rows) only when the stage has timer rows."""
        self._types: dict[str, RowCodec] = stage.rows
        self._codec: Codec = stage.codec
        self.store = store
        self._current: dict[str, Any] = {}
        # Of this batch's timer rows: timers and store share one copy of a key.
        self._raw_keys: dict[str, bytes] = {}
        self._sizes: list[int] = []
        self._recent = RecentRows()
        self._timers = {
            row_type.prefix: Timers(row_type.due_field, ticking=row_type.ticking)
            for row_type in self._types.values()
            if row_type.due_field is not None
        }
        self._ticking = tuple(timers for timers in self._timers.values() if timers.ticking)
        self._lazy = tuple(timers for timers in self._timers.values() if not timers.ticking)
        self._tallies = {
            row_type.prefix: Tally(row_type.tally_field)
            for row_type in self._types.values()
            if row_type.tally_field is not None
        }
        self._told = tuple(row.prefix for row in self._types.values() if row.told)
        for prefix, timers in self._timers.items():
            timers.load(self._stored_due(prefix, timers.due_field))

    def _stored_due(self, prefix: str, due_field: str) -> Iterator[tuple[bytes, int | None]]:
        decode, tally = self._codec.decode, self._tallies.get(prefix)
        whole = prefix.encode()
        marker = whole + b":"
        for key, value in self.store.items():
            if key.startswith(marker) or key == whole:
                row = decode(value)[1]
                if tally is not None:
                    tally.change(None, row)
                yield key, row[due_field]

    # ------------------------------------------------------------------ what folds call
    def get(self, key: str, /) -> Any:  # noqa: ANN401 - the row's TypedDict, by its prefix
        """See `Rows.get`."""
        value = self._current.get(key, ABSENT)
        if value is not ABSENT:
            return value
        value = self._recent.get(key)
        if value is not ABSENT:
            return value
        raw = self.store.get(key.encode())
        if raw is None:
            value, size = None, 0
        else:
            value, size = self._codec.decode(raw)[1], len(raw)
        self._recent.keep(key, value, size)
        return value

    def put(self, key: str, value: Mapping[str, Any], /) -> None:
        """See `Rows.put`; KeyError when the prefix is not declared."""
        prefix = prefix_of(key)
        timers = self._timers.get(prefix)
        if timers is not None:
            timers.set(self._raw(key), value[timers.due_field])
            if prefix in self._tallies:
                self._tallies[prefix].change(self.get(key), value)
        elif prefix not in self._types:
            raise KeyError(f"row {key!r}: the stage declares no rows of prefix {prefix!r}")
        self._current[key] = value

    def delete(self, key: str, /) -> None:
        """See `Rows.delete`; KeyError when the prefix is not declared."""
        prefix = prefix_of(key)
        timers = self._timers.get(prefix)
        if timers is not None:
            timers.drop(self._raw(key))
            if prefix in self._tallies:
                self._tallies[prefix].change(self.get(key), None)
        elif prefix not in self._types:
            raise KeyError(f"row {key!r}: the stage declares no rows of prefix {prefix!r}")
        self._current[key] = None

    def scan(self, prefix: str, /) -> Iterator[tuple[str, Any]]:
        """See `Rows.scan`."""
        found = {key.decode() for key, _ in self.store.prefixed(prefix.encode())}
        found.update(key for key in self._current if key.startswith(prefix))
        for key in sorted(found):
            value = self.get(key)
            if value is not None:
                yield key, value

    def each(self, prefix: str, /) -> Iterator[tuple[str, Any]]:
        """See `Rows.each`."""
        current, decode, marker = self._current, self._codec.decode, prefix.encode()
        for raw_key, raw in self.store.items():
            if raw_key.startswith(marker) and (key := raw_key.decode()) not in current:
                yield key, decode(raw)[1]
        for key, value in current.items():
            if value is not None and key.startswith(prefix):
                yield key, value

    def count(self, prefix: str, /) -> int:
        """See `Rows.count`; KeyError when rows of the prefix are no timers."""
        return len(self._timers[prefix])

    def oldest(self, prefix: str, /) -> str | None:
        """See `Rows.oldest`; KeyError when rows of the prefix are no timers."""
        entry = self._timers[prefix].first()
        return None if entry is None else entry[1].decode()

    # ------------------------------------------------------------------ what the engine calls
    def counts(self) -> dict[str, int]:
        """Return how many rows there are of each prefix with a due time, waiting or not."""
        return {prefix: len(timers) for prefix, timers in self._timers.items()}

    def standing(self) -> Standing:
        """Return what is told of the rows beside the partition's position."""
        said: Standing = {prefix: dict(tally.counts) for prefix, tally in self._tallies.items()}
        for key in self._told:
            row = self.get(key)
            if row is not None:
                said[key] = row
        return said

    def of_prefix(self, prefix: str) -> Iterator[tuple[str, Any]]:
        """Yield the rows of a prefix with a due time, without looking at any other row."""
        timers = self._timers.get(prefix)
        for raw_key in sorted(timers.due) if timers is not None else ():
            key = raw_key.decode()
            yield key, self.get(key)

    def any_due(self, now_ms: int) -> bool:
        """Whether `pop_due` may find something; a stale timer may make it say so in vain."""
        for timers in self._timers.values():
            heap = timers.heap
            if heap and heap[0][0] <= now_ms:
                return True
        return False

    def pop_due(self, now_ms: int, *, ticking: bool) -> tuple[int, str] | None:
        """Disarm the first timer that is due, in (due, key) order; return both, or None.

        Whoever fires it must change or delete the row: its stored due time would arm it again after
        a reload.
        """
        chosen: Timers | None = None
        best: tuple[int, bytes] | None = None
        for timers in self._ticking if ticking else self._lazy:
            entry = timers.first()
            if entry is not None and entry[0] <= now_ms and (best is None or entry < best):
                chosen, best = timers, entry
        if chosen is None or best is None:
            return None
        chosen.disarm_first()
        return best[0], best[1].decode()

    def is_due_at(self, key: str, due_ms: int) -> bool:
        """Whether the timer row under `key` is stored with that due time."""
        row = self.get(key)
        return row is not None and row[self._timers[prefix_of(key)].due_field] == due_ms

    def encoded(self, key: str) -> bytes:
        """Return the row under `key` as bytes, as this batch left it; empty when there is none."""
        row = self.get(key)
        return b"" if row is None else self._types[prefix_of(key)].encode(row)

    def next_tick_ms(self) -> int | None:
        """Return when the first ticking timer is due; None when nothing waits."""
        heads = [entry[0] for timers in self._ticking if (entry := timers.first()) is not None]
        return min(heads, default=None)

    def changes(self) -> list[tuple[RowChange, bytes | None]]:
        """Return the rows that this batch changed, encoded, each with its committed value."""
        changed: list[tuple[RowChange, bytes | None]] = []
        sizes: list[int] = []
        get, types, raw_keys = self.store.get, self._types, self._raw_keys
        for key, value in self._current.items():
            raw_key = raw_keys.get(key) or key.encode()
            before = get(raw_key)
            after = None if value is None else types[prefix_of(key)].encode(value)
            sizes.append(0 if after is None else len(after))
            if before != after:
                changed.append(((raw_key, after), before))
        self._sizes = sizes
        return changed

    def settle(self) -> None:
        """Forget the overlay, whose `changes` are in the store now."""
        keep = self._recent.keep
        for (key, value), size in zip(self._current.items(), self._sizes, strict=True):
            keep(key, value, size)
        self._current = {}
        self._raw_keys = {}
        self._sizes = []

    def _raw(self, key: str) -> bytes:
        raw = self._raw_keys.get(key)
        if raw is None:
            raw = self._raw_keys[key] = key.encode()
        return raw
