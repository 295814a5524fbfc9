"""Many append-only sequences of fixed-size entries in bounded memory: full blocks go to one file.

The auditor notes every actual output, per stage partition and output partition, before it
recomputes them; a log of a hundred million outputs must not need that much memory.  What is stored
can be handed to another process.

Invariants: at most one block per sequence is in memory; entries come back in the order they came.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.closable import Closable

__all__ = ["Sequence", "Spool", "Stored"]

_BLOCK_BYTES = 8_192


@dataclass(frozen=True, slots=True)
class Stored:
    """A finished sequence: whole blocks at `blocks` of the file, and the rest of it in `tail`."""

    path: Path
    entry: str
    block_bytes: int
    blocks: array[int]
    tail: bytes

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the entries from the first on; the file is open meanwhile."""
        unpack = struct.Struct(self.entry).iter_unpack
        if self.blocks:
            with self.path.open("rb", buffering=0) as file:
                for at in self.blocks:
                    file.seek(at)
                    yield from unpack(file.read(self.block_bytes))
        yield from unpack(self.tail)

    def __len__(self) -> int:
        """How many entries there are."""
        stored = len(self.blocks) * self.block_bytes + len(self.tail)
        return stored // struct.calcsize(self.entry)


class Sequence:
    """One sequence of a spool while it is written."""

    __slots__ = ("_block", "_blocks", "_pack", "_spool")

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._pack = spool.entry.pack
        self._block = bytearray()
        self._blocks = array("q")

    def add(self, *fields: Any) -> None:  # noqa: ANN401 - whatever the spool's format takes
        """Append one entry; struct.error when the fields do not fit."""
        self._block += self._pack(*fields)
        if len(self._block) >= self._spool.block_bytes:
            self._blocks.append(self._spool.store(self._block))
            self._block = bytearray()

    def stored(self) -> Stored:
        """Return the sequence as it is now, to be read."""
        spool = self._spool
        format_ = spool.entry.format
        return Stored(spool.path, format_, spool.block_bytes, self._blocks, bytes(self._block))


class Spool(Closable):
    """Writes the blocks of its sequences to the file `path`; whoever gave the path removes it."""

    def __init__(self, path: Path, entry: struct.Struct) -> None:
        """Make a spool of entries of the format `entry`."""
        self.path = path
        self.entry = entry
        self.block_bytes = _BLOCK_BYTES // entry.size * entry.size
        self._file = path.open("wb", buffering=0)
        self._size = 0

    def sequence(self) -> Sequence:
        """Return a new, empty sequence."""
        return Sequence(self)

    def store(self, block: bytearray) -> int:
        """Write a block; return where it lies."""
        at = self._size
        self._file.write(block)
        self._size += len(block)
        return at

    def close(self) -> None:
        """Close the file."""
        self._file.close()
