"""What the hash chain commits to.

Every input, output and row of a batch, and the journal entry's own fields.
Each piece is framed by its kind and the lengths of its parts, so that no two different batches give
the same bytes: nothing can be moved from a value into the next header, or from one batch into
another, without changing the chain.

Source: DESIGN law 6 "a hash chained over inputs, outputs and rows, so that tampering shows".
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct

from streams.engine.fetched import RawRecord
from streams.engine.store import RowChange

HASH_BYTES = 32
GENESIS = b"\0" * HASH_BYTES
"""Chain and state hash before the first transaction."""

_INPUT = Struct(">BqqiiI")  # kind, offset, timestamp, key length, value length, headers
_HEADER = Struct(">Ii")  # name length, content length
_OUTPUT = Struct(">BiIIII")  # kind, partition, lengths of cause, extra headers, key and value
_ROW = Struct(">BIi")  # kind, key length, value length
_INPUT_PIECE, _OUTPUT_PIECE, _ROW_PIECE = 1, 2, 3
_ABSENT = -1  # the length of what is not there: a null key, value or header, a deleted row
_MODULUS = 1 << (8 * HASH_BYTES)


def row_hash(key: bytes, value: bytes, /) -> int:
    """Return the hash of one row, as it is summed into the state hash."""
    framed = len(key).to_bytes(4) + key + value
    return int.from_bytes(blake2b(framed, digest_size=HASH_BYTES).digest())


class Evidence:
    """Collects the pieces of one batch, in the order in which things happened."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def add_input(self, raw: RawRecord) -> int:
        """Commit to a mailbox record as it was fetched; return the bytes of all its parts."""
        pieces, key, value, headers = self.pieces, raw.key, raw.value, raw.headers
        key_size = _ABSENT if key is None else len(key)
        value_size = _ABSENT if value is None else len(value)
        frame = _INPUT.pack(
            _INPUT_PIECE, raw.offset, raw.timestamp, key_size, value_size, len(headers)
        )
        pieces += (frame, key or b"", value or b"")
        size = max(key_size, 0) + max(value_size, 0)
        for name, content in headers:
            raw_name = name.encode()
            name_size = len(raw_name)
            if content is None:
                pieces += (_HEADER.pack(name_size, _ABSENT), raw_name)
                size += name_size
            else:
                content_size = len(content)
                pieces += (_HEADER.pack(name_size, content_size), raw_name, content)
                size += name_size + content_size
        return size

    def add_output(
        self,
        tag: bytes,
        partition: int | None,
        cause: bytes,
        extra: bytes,
        key: bytes,
        value: bytes,
    ) -> None:
        """Commit to an output; `tag` is topic and kind, `extra` the headers besides ours."""
        self.pieces += (
            _OUTPUT.pack(
                _OUTPUT_PIECE,
                _ABSENT if partition is None else partition,
                len(cause),
                len(extra),
                len(key),
                len(value),
            ),
            tag,
            cause,
            extra,
            key,
            value,
        )

    def add_rows(
        self, changes: Sequence[tuple[RowChange, bytes | None]], state_hash: bytes
    ) -> bytes:
        """Commit to the changed rows, each with what it replaces; return the new state hash."""
        total = int.from_bytes(state_hash)
        pieces = self.pieces
        for (key, after), before in changes:
            if before is not None:
                total -= row_hash(key, before)
            if after is None:
                pieces += (_ROW.pack(_ROW_PIECE, len(key), _ABSENT), key)
            else:
                total += row_hash(key, after)
                pieces += (_ROW.pack(_ROW_PIECE, len(key), len(after)), key, after)
        return (total % _MODULUS).to_bytes(HASH_BYTES)

    def chain(self, entry: bytes) -> bytes:
        """Return the chain hash: over the entry that holds the previous one, and all pieces."""
        framed = len(entry).to_bytes(4) + entry + b"".join(self.pieces)
        return blake2b(framed, digest_size=HASH_BYTES).digest()
