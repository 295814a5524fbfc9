"""Opening the store of a partition, and bringing it up to the changelog's stable end.

| store | cold start | warm start |
|---|---|---|
| memory | reads the whole changelog | reads the whole changelog |
| rocksdb | reads the whole changelog into the database | reads the changelog's tail |

Source: DESIGN "Taking a partition", "State".
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING

from streams.agents.changelog import StateReader
from streams.agents.rocks import RocksStore
from streams.codec import Codec
from streams.engine import POSITION_KEY, START, MemoryStore, RowChange, StatePosition, Store
from streams.settings import Settings

_WRITE_ROWS = 20_000  # rows loaded into RocksDB per write batch


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Stores:
    """Opens, loads and closes the partition stores of one stage.  Blocking: call it in a thread."""

    def __init__(self, settings: Settings, stage: str, codec: Codec, reader: StateReader) -> None:
        self._codec = codec
        self._reader = reader
        # The changelog keeps tombstones for a mailbox' retention; half of it is far from the edge.
        self._away_ms_max = settings.retention_mailbox_ms // 2
        self._folder: Path | None = None
        if settings.store == "rocksdb":
            self._folder = (
                settings.state_dir / "rocksdb" / (settings.instance_id or "default") / stage
            )

    def load(self, partitions: Iterable[int]) -> dict[int, tuple[Store, StatePosition]]:
        """Open each partition's store at the changelog's stable end."""
        wanted = list(partitions)
        if not wanted:
            return {}
        return (
            self._load_memory(wanted)
            if self._folder is None
            else self._load_rocks(wanted, self._folder)
        )

    def _load_memory(self, partitions: list[int]) -> dict[int, tuple[Store, StatePosition]]:
        rows: dict[int, dict[bytes, bytes]] = {partition: {} for partition in partitions}

        def take(partition: int, key: bytes, value: bytes | None, _offset: int) -> None:
            if value is None:
                rows[partition].pop(key, None)
            else:
                rows[partition][key] = value

        self._reader.load(dict.fromkeys(partitions, OFFSET_BEGINNING), take)
        loaded: dict[int, tuple[Store, StatePosition]] = {}
        for partition in partitions:
            position = self._position(rows[partition].pop(POSITION_KEY, None))
            loaded[partition] = (MemoryStore(rows[partition]), position)
        return loaded

    def _load_rocks(
        self, partitions: list[int], folder: Path
    ) -> dict[int, tuple[Store, StatePosition]]:
        stores = {partition: self._open_rocks(folder / str(partition)) for partition in partitions}
        pending: dict[int, list[RowChange]] = {partition: [] for partition in partitions}
        ends: dict[int, int] = {}

        def take(partition: int, key: bytes, value: bytes | None, offset: int) -> None:
            changes = pending[partition]
            changes.append((key, value))
            ends[partition] = offset + 1
            # Cut behind a position row only: the store must never stand between two transactions.
            if len(changes) >= _WRITE_ROWS and key == POSITION_KEY:
                stores[partition].load(changes)
                changes.clear()

        starts = {p: store.replay_from or OFFSET_BEGINNING for p, store in stores.items()}
        self._reader.load(starts, take)
        loaded: dict[int, tuple[Store, StatePosition]] = {}
        for partition, store in stores.items():
            store.load(pending[partition])
            if partition in ends:
                store.set_replay_from(ends[partition], _now_ms())
            loaded[partition] = (store, self._position(store.position))
        return loaded

    def _open_rocks(self, path: Path) -> RocksStore:
        """Open a store, anew when it was away for so long that tombstones may be gone."""
        store = RocksStore(path)
        if store.marked_at_ms and _now_ms() - store.marked_at_ms > self._away_ms_max:
            store.close()
            shutil.rmtree(path)
            store = RocksStore(path)
        return store

    def _position(self, row: bytes | None) -> StatePosition:
        return START if row is None else StatePosition.from_row(self._codec.decode(row)[1])

    def mark(self, partition: int, store: Store) -> None:
        """Refresh how little a later start must replay; call it now and then, between commits.

        The end is read before what is committed next, so the bound is never too high.
        """
        if isinstance(store, RocksStore):
            store.set_replay_from(self._reader.stable_end(partition), _now_ms())

    def close(self, store: Store) -> None:
        """Let go of a partition's store."""
        if isinstance(store, RocksStore):
            store.close()

    def discard(self, partition: int, store: Store) -> None:
        """Throw away a store that disagrees with the changelog; the next load is a cold one."""
        self.close(store)
        if self._folder is not None:
            shutil.rmtree(self._folder / str(partition), ignore_errors=True)
