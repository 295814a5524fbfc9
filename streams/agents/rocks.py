"""Rows on disk: `rocksdb://`.  A warm start reads nothing but the changelog's tail.

Rows are written after the transaction that committed them, together with the position that they
lead to, in one write batch: the store is always at some committed position, never between two.
How far back the changelog must be replayed is kept as a lower bound that is refreshed now and
then; replaying a row twice is harmless.

Source: DESIGN "State"; FINDINGS 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, ReadOptions, WriteBatch

from streams.engine import POSITION_KEY, RowChange

_REPLAY_FROM_KEY = b"\0replay_from"
_MARKED_AT_KEY = b"\0marked_at_ms"
_RESERVED = b"\0"
_WRITE_BUFFER_BYTES = 32_000_000
_LOG_FILES_KEPT = 2


class RocksStore:
    """The committed rows of one partition in a RocksDB of its own."""

    def __init__(self, path: Path) -> None:
        """Open or create the database at `path`; the parent folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)  # noqa: FBT003 - RocksDB's own signature
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_keep_log_file_num(_LOG_FILES_KEPT)
        self._db = Rdict(str(path), options=options)

    def get(self, key: bytes, /) -> bytes | None:
        """See `Store.get`."""
        return self._db.get(key)

    def apply(self, changes: Sequence[RowChange], position: bytes, /) -> None:
        """See `Store.apply`."""
        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(POSITION_KEY, position)
        self._db.write(batch)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.items`."""
        return self.prefixed(b"")

    def prefixed(self, prefix: bytes, /) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.prefixed`."""
        start = prefix or b"\x01"
        found: Any = self._db.items(from_key=start, read_opt=ReadOptions())
        for key, value in found:
            if not key.startswith(prefix):
                return
            if not key.startswith(_RESERVED):
                yield key, value

    def __len__(self) -> int:
        """RocksDB's estimate."""
        estimate: int | None = self._db.property_int_value("rocksdb.estimate-num-keys")
        return estimate or 0

    @property
    def position(self) -> bytes | None:
        """The encoded position that the rows stand at, or None when the store is new."""
        return self._db.get(POSITION_KEY)

    @property
    def replay_from(self) -> int:
        """Changelog offset at or before the first record that the store may miss."""
        found = self._db.get(_REPLAY_FROM_KEY)
        return 0 if found is None else int.from_bytes(found)

    def load(self, changes: Sequence[RowChange]) -> None:
        """Write changelog records as they are, the position row included."""
        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self._db.write(batch)

    @property
    def marked_at_ms(self) -> int:
        """When `replay_from` was last set, ms since epoch; 0 for never."""
        found = self._db.get(_MARKED_AT_KEY)
        return 0 if found is None else int.from_bytes(found)

    def set_replay_from(self, offset: int, now_ms: int) -> None:
        """Remember that everything before changelog `offset` is in the store."""
        self._db.put(_REPLAY_FROM_KEY, offset.to_bytes(8))
        self._db.put(_MARKED_AT_KEY, now_ms.to_bytes(8))

    def snapshot(self) -> list[tuple[bytes, bytes]]:
        """See `Store.snapshot`."""
        return list(self.items())

    def close(self) -> None:
        """Close the database; its lock is free afterwards."""
        self._db.close()
