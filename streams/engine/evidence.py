"""What the hash chain commits to.

Every input, output and row of a batch, and the journal entry's own fields.
Each piece is one MessagePack array that begins with the piece's kind.  Such arrays carry the
lengths of their parts and follow one another unambiguously, so that no two different batches give
the same bytes: nothing can be moved from a value into the next header, or from one batch into
another, without changing the chain.

| piece | array |
|---|---|
| input | 1, offset, timestamp, key, value, headers as pairs |
| output | 2, topic NUL kind NUL, partition, cause, further headers, key, value |
| row | 3, key, value |

Keys, values and header contents are binaries, or nil where there is none.

Source: DESIGN law 6 "a hash chained over inputs, outputs and rows, so that tampering shows".
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, sha256

from msgspec import Raw
from msgspec.msgpack import Encoder

from streams.engine.fetched import RawRecord
from streams.engine.store import RowChange

HASH_BYTES = 32
GENESIS = b"\0" * HASH_BYTES
"""Chain and state hash before the first transaction."""

_INPUT, _OUTPUT, _ROW = 1, 2, 3
_MODULUS = 1 << (8 * HASH_BYTES)

_pack = Encoder().encode


_EMPTY = blake2b(digest_size=HASH_BYTES)
"""Copied for each row: that takes less time than to set one up."""


def row_hash(key: bytes, value: bytes, /) -> int:
    """Return the hash of one row, as it is summed into the state hash."""
    framed = len(key).to_bytes(4) + key + value
    digest = _EMPTY.copy()
    digest.update(framed)
    return int.from_bytes(digest.digest())


class Evidence:
    """Collects the pieces of one batch, in the order in which things happened."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[Raw | tuple[object, ...]] = []

    def add_input(self, raw: RawRecord) -> int:
        """Commit to a mailbox record as it was fetched; return the size of its piece, bytes."""
        piece = _pack((_INPUT, raw.offset, raw.timestamp, raw.key, raw.value, raw.headers))
        self._pieces.append(Raw(piece))
        return len(piece)

    def add_output(
        self,
        tag: bytes,
        partition: int | None,
        cause: bytes,
        extra: bytes,
        key: bytes,
        value: bytes | None,
    ) -> None:
        """Commit to an output; `tag` is topic and kind, `extra` the headers besides ours."""
        self._pieces.append((_OUTPUT, tag, partition, cause, extra, key, value))

    def add_rows(
        self, changes: Sequence[tuple[RowChange, bytes | None]], state_hash: bytes
    ) -> bytes:
        """Commit to the changed rows, each with what it replaces; return the new state hash."""
        total = int.from_bytes(state_hash)
        pieces = self._pieces
        for (key, after), before in changes:
            if before is not None:
                total -= row_hash(key, before)
            if after is not None:
                total += row_hash(key, after)
            pieces.append((_ROW, key, after))
        return (total % _MODULUS).to_bytes(HASH_BYTES)

    def chain(self, entry: bytes) -> bytes:
        """Return the chain hash: over the entry that holds the previous one, and all pieces."""
        # With the processor's own instructions it is twice as fast as BLAKE2b; bodies are long.
        chain = sha256(len(entry).to_bytes(4) + entry)
        chain.update(self.packed())
        return chain.digest()

    def packed(self) -> memoryview:
        """Return all pieces, one after the other."""
        # Packed at once, as the array that they would be, and without the head of that array.
        pieces = self._pieces
        head = 1 if len(pieces) < 1 << 4 else 3 if len(pieces) < 1 << 16 else 5
        return memoryview(_pack(pieces))[head:]
