"""A stage's rows as a Faust table: Faust knows it, the stage loads and writes it.

Faust's own recovery never ends on a changelog whose last record is a commit marker, so stage
tables are left out of it; its stores cannot tell partitions apart, so rows live in one store per
owned partition.

Source: FINDINGS 8.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import faust
from faust.stores import memory as memory_store
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.types import TP

from streams.engine import Store


class OwnedRows(MutableMapping[bytes, bytes]):
    """All rows of the partitions owned by this member: what Faust's tools see.  Read only."""

    def __init__(self) -> None:
        self.stores: dict[int, Store] = {}

    def __getitem__(self, key: bytes) -> bytes:
        for store in self.stores.values():
            value = store.get(key)
            if value is not None:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[bytes]:
        for store in self.stores.values():
            yield from (key for key, _ in store.items())

    def __len__(self) -> int:
        return sum(len(store) for store in self.stores.values())

    def __setitem__(self, key: bytes, value: bytes) -> None:
        message = f"row {key!r}: rows are written by the stage's transactions only"
        raise TypeError(message)

    def __delitem__(self, key: bytes) -> None:
        message = f"row {key!r}: rows are deleted by the stage's transactions only"
        raise TypeError(message)


class StageStore(memory_store.Store):
    """Faust's handle on the rows; holds none itself."""

    def __post_init__(self) -> None:
        self.data = OwnedRows()
        self._key_partition = {}

    def persisted_offset(self, tp: TP) -> int | None:  # noqa: ARG002 - Faust's signature
        """None: the stage knows its own position."""
        return None

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Nothing to do: partitions are taken and dropped by the stage."""


class StageTable(faust.Table):
    """The table of a stage."""

    is_stage = True

    def _new_store(self) -> Any:
        return StageStore("memory://", self.app, self, table_name=self.name)


class StageRecovery(Recovery):
    """Recovery that leaves stage tables alone."""

    def _others(self, tps: set[TP]) -> set[TP]:
        return {tp for tp in tps if not getattr(self.tp_to_table.get(tp), "is_stage", False)}

    async def _build_highwaters(
        self, consumer: Any, tps: set[TP], destination: Any, title: str
    ) -> None:
        await super()._build_highwaters(consumer, self._others(tps), destination, title)

    async def _build_offsets(
        self, consumer: Any, tps: set[TP], destination: Any, title: str
    ) -> None:
        await super()._build_offsets(consumer, self._others(tps), destination, title)

    async def _seek_offsets(self, consumer: Any, tps: set[TP], offsets: Any, title: str) -> None:
        await super()._seek_offsets(consumer, self._others(tps), offsets, title)

    async def _wait(self, coro: Any, timeout: Any = None) -> None:  # noqa: ARG002, ASYNC109 - Faust's signature
        """Wait without a limit: at the end of one, Faust would go on as if partitions were taken.

        A rebalance and a stop end the waiting, and what is waited for fails by itself.
        """
        await super()._wait(coro)


class StageTableManager(TableManager):
    """Table manager whose recovery is the one above."""

    @property
    def recovery(self) -> Any:
        """The recovery service, made on first use."""
        if self._recovery is None:
            self._recovery = StageRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
