"""Many append-only sequences of fixed-size entries in bounded memory: full blocks go to one file.

The auditor notes every actual output, per stage partition and output partition, before it
recomputes them; a log of a hundred million outputs must not need that much memory.

Invariants: at most one block per sequence is in memory; entries come back in the order they came.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from struct import Struct
from types import TracebackType
from typing import Any, Self

__all__ = ["Sequence", "Spool"]

_BLOCK_BYTES = 8_192


class Sequence:
    """One sequence of a spool.  Append first, iterate afterwards, as often as needed."""

    __slots__ = ("_block", "_blocks", "_spool", "append", "length")

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._block = bytearray()
        self._blocks: list[tuple[int, int]] = []
        self.length = 0

    def add(self, *fields: Any) -> None:  # noqa: ANN401 - whatever the spool's format takes
        """Append one entry."""
        self._block += self._spool.entry.pack(*fields)
        self.length += 1
        if len(self._block) >= _BLOCK_BYTES:
            self._blocks.append(self._spool.store(self._block))
            self._block = bytearray()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the entries from the first on."""
        unpack = self._spool.entry.iter_unpack
        for at, size in self._blocks:
            yield from unpack(self._spool.load(at, size))
        yield from unpack(bytes(self._block))


class Spool(AbstractContextManager["Spool"]):
    """Holds the blocks of its sequences in an unnamed file, which goes when the spool is closed."""

    def __init__(self, entry: Struct) -> None:
        """Make a spool of entries of the format `entry`."""
        self.entry = entry
        self._file = tempfile.TemporaryFile(prefix="harn-audit-")  # noqa: SIM115 - closed in __exit__
        self._size = 0

    def sequence(self) -> Sequence:
        """Return a new, empty sequence."""
        return Sequence(self)

    def store(self, block: bytearray) -> tuple[int, int]:
        """Write a block; return where it lies and its size, bytes."""
        at = self._size
        self._file.seek(at)
        self._file.write(block)
        self._size += len(block)
        return at, len(block)

    def load(self, at: int, size: int) -> bytes:
        """Read a block back."""
        self._file.seek(at)
        return self._file.read(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
