"""Where one partition's rows live: bytes by bytes, changed only by committed batches.

Source: DESIGN "The stage runtime", "State".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

RowChange = tuple[bytes, bytes | None]
"""A row key and its new value; None deletes the row."""


class Store(Protocol):
    """The committed rows of one partition."""

    def get(self, key: bytes, /) -> bytes | None:
        """Return the value under `key`, or None."""
        ...

    def apply(self, changes: Sequence[RowChange], position: bytes, /) -> None:
        """Make a committed batch's changes, together with the position that they lead to."""
        ...

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows, in any order."""
        ...

    def prefixed(self, prefix: bytes, /) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the rows whose key starts with `prefix`, in key order."""
        ...

    def snapshot(self) -> list[tuple[bytes, bytes]]:
        """All rows at this moment, in any order, for somebody who reads them later."""
        ...

    def __len__(self) -> int:
        """Return how many rows there are; may be an estimate for stores on disk."""
        ...


class MemoryStore:
    """Rows in a dictionary: `memory://`, the in-memory driver and the auditor."""

    __slots__ = ("position", "rows")

    def __init__(self, rows: dict[bytes, bytes] | None = None) -> None:
        """Start from `rows`, which the store then owns."""
        self.rows: dict[bytes, bytes] = {} if rows is None else rows
        self.position: bytes | None = None

    def get(self, key: bytes, /) -> bytes | None:
        """See `Store.get`."""
        return self.rows.get(key)

    def apply(self, changes: Sequence[RowChange], position: bytes, /) -> None:
        """See `Store.apply`."""
        rows = self.rows
        for key, value in changes:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        self.position = position

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.items`."""
        return iter(self.rows.items())

    def prefixed(self, prefix: bytes, /) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.prefixed`."""
        for key in sorted(key for key in self.rows if key.startswith(prefix)):
            yield key, self.rows[key]

    def snapshot(self) -> list[tuple[bytes, bytes]]:
        """See `Store.snapshot`."""
        return list(self.rows.items())

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.rows)
