"""Taking partitions: fence, committed offset, state, in that order.

A partition that stays with this member keeps its producer and its memory, as long as nobody else
committed meanwhile.

Source: DESIGN "Taking a partition"; FINDINGS 1.4, 14, 15.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from streams.agents.changelog import CommittedOffset
from streams.agents.owned import Owned
from streams.errors import BrokerError
from streams.observe import logs

if TYPE_CHECKING:
    from streams.agents.live import LiveStage

_log = logs.logger(__name__)

_ATTEMPTS = 100
_RETRY_S = 0.2


class Taking:
    """Takes partitions for one live stage."""

    def __init__(self, live: LiveStage) -> None:
        self._live = live

    async def take(self, partitions: list[int]) -> dict[int, Owned]:
        """Own exactly `partitions`: fence and load the new ones, drop the others."""
        live = self._live
        before = live.owned
        self._drop([entry for partition, entry in before.items() if partition not in partitions])
        kept = {p: before[p] for p in partitions if p in before and before[p].memory is not None}
        owned = dict(kept)
        for partition in partitions:
            if partition not in owned:
                owned[partition] = Owned(partition, live.new_producer(partition))
        await self._fence([owned[p] for p in partitions if p not in kept])
        committed = await self._committed(partitions)
        overtaken = [entry for p, entry in kept.items() if not entry.current(*committed[p])]
        if overtaken:
            for entry in overtaken:
                self._close_store(entry)
                entry.producer = live.new_producer(entry.partition)
            await self._fence(overtaken)
        stale = [entry for entry in owned.values() if entry.memory is None]
        await self._load(stale)
        for entry in owned.values():
            if entry.step_dropped:
                entry.rebuild(live.bound)
        return owned

    def _drop(self, entries: list[Owned]) -> None:
        for entry in entries:
            self._close_store(entry)

    def _close_store(self, entry: Owned) -> None:
        if entry.memory is not None:
            self._live.stores.close(entry.memory.rows.store)
            entry.memory = None

    async def _fence(self, entries: list[Owned]) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(loop.run_in_executor(self._live.pool, entry.producer.fence) for entry in entries)
        )

    async def _committed(self, partitions: list[int]) -> dict[int, CommittedOffset]:
        if not partitions:
            return {}
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._live.pool, self._live.reader.committed, partitions)

    async def _load(self, entries: list[Owned]) -> None:
        """Load until rows and committed offsets agree; after a fence they do at once.

        Raises: BrokerError when they never do.
        """
        live, loop = self._live, asyncio.get_running_loop()
        waiting = {entry.partition: entry for entry in entries}
        for _ in range(_ATTEMPTS):
            if not waiting:
                return
            committed = await self._committed(sorted(waiting))
            loaded = await loop.run_in_executor(live.pool, live.stores.load, sorted(waiting))
            for partition, (store, position) in loaded.items():
                found = committed[partition]
                if position.seq < found.seq:
                    live.stores.discard(partition, store)
                    continue
                if found.offset >= 0 and found.offset != position.next_offset:
                    # The group was reset, or renamed: the position committed with the rows is the
                    # one to trust.
                    _log.warning(
                        "committed_offset_ignored",
                        extra={
                            "stage": live.name,
                            "partition": partition,
                            "committed": found.offset,
                            "position": position.next_offset,
                        },
                    )
                waiting.pop(partition).load(live.bound, store, position)
            if waiting:
                await asyncio.sleep(_RETRY_S)
        message = (
            f"rows of {live.name} partitions {sorted(waiting)} are older than their committed "
            f"offsets: the changelog {live.bound.declaration.changelog} has lost records"
        )
        raise BrokerError(
            message, retryable=False, remedy="restore the changelog, or replay the mailbox"
        )
