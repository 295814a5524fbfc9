"""Taking partitions: fence, committed offset, state, in that order.

A partition that stays with this member keeps its producer and its memory, as long as nobody else
committed meanwhile.  It is fenced anew when another owner may have fenced it in between.

| the mailbox | is |
|---|---|
| ends before where the state stands | not the one that was folded: refused |
| begins after where the state stands | cut before it was folded: told, since nothing mends it |

Source: DESIGN "Taking a partition"; FINDINGS 1.4, 14, 15.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from streams.agents.changelog import TIMEOUT_S, CommittedOffset
from streams.agents.owned import Owned
from streams.agents.stage_view import StageView
from streams.engine import Memory, StatePosition
from streams.errors import BrokerError, TopologyError
from streams.observe import logs

_log = logs.logger(__name__)

_ATTEMPTS = 100
_RETRY_S = 0.2
_PATIENCE_FACTOR = 1.5  # of a transaction's longest time: by then the coordinator has ended it


def _look_at(taking: asyncio.Task[Any]) -> None:
    """Take note of what came of a taking that nobody may wait for any more."""
    if not taking.cancelled():
        taking.exception()


class Taking:
    """Takes partitions for one live stage."""

    def __init__(self, live: StageView) -> None:
        self._live = live
        self._under_way: asyncio.Task[dict[int, Owned]] | None = None

    async def take(self, partitions: Collection[int], *, doubtful: bool) -> dict[int, Owned]:
        """Own exactly `partitions`: fence and load the new ones, drop the others.

        One taking ends before the next one begins, also when nobody waits for it any more: its
        threads have the stores in their hands.

        Args:   doubtful: whether other owners may have fenced what stays with us.
        Raises: TopologyError for a mailbox that is not the one that was folded; BrokerError.
        """
        taking = self._take_after(self._under_way, partitions, doubtful=doubtful)
        self._under_way = asyncio.get_running_loop().create_task(taking)
        self._under_way.add_done_callback(_look_at)
        return await asyncio.shield(self._under_way)

    async def ended(self) -> None:
        """Wait for a taking that is still under way, whatever comes of it."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])

    async def _take_after(
        self, last: asyncio.Task[Any] | None, partitions: Collection[int], *, doubtful: bool
    ) -> dict[int, Owned]:
        if last is not None:
            await asyncio.wait([last])
        return await self._take(partitions, doubtful=doubtful)

    async def _take(self, partitions: Collection[int], *, doubtful: bool) -> dict[int, Owned]:
        live = self._live
        before = live.owned
        kept = {p: before[p] for p in partitions if p in before and before[p].memory is not None}
        self._close_stores([entry for p, entry in before.items() if p not in kept])
        owned = live.owned = {
            p: kept.get(p) or Owned(p, live.new_producer(p)) for p in sorted(partitions)
        }
        in_doubt = list(kept.values()) if doubtful else []
        self._renew_producers(in_doubt)
        fenced = [*in_doubt, *(owned[p] for p in owned if p not in kept)]
        await self._fence(fenced)
        committed = await self._committed_at_last(partitions, fenced)
        overtaken = [entry for p, entry in kept.items() if not entry.current(*committed[p])]
        self._close_stores(overtaken)
        self._renew_producers(overtaken)
        await self._fence(overtaken)
        await self._load([entry for entry in owned.values() if entry.memory is None])
        for entry in owned.values():
            if entry.step_dropped:
                entry.rebuild(live.bound)
        return owned

    def _close_stores(self, entries: Collection[Owned]) -> None:
        for entry in entries:
            if entry.memory is not None:
                self._live.stores.close(entry.memory.rows.store)
                entry.memory = None

    def _renew_producers(self, entries: Collection[Owned]) -> None:
        for entry in entries:
            entry.producer = self._live.new_producer(entry.partition)

    async def _fence(self, entries: Collection[Owned]) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(loop.run_in_executor(self._live.pool, entry.producer.fence) for entry in entries)
        )

    async def _committed_at_last(
        self, partitions: Collection[int], fenced: Collection[Owned]
    ) -> dict[int, CommittedOffset]:
        """Committed offsets; those that no transaction will ever settle are settled here."""
        live, loop = self._live, asyncio.get_running_loop()
        patience_s = live.settings.transaction_timeout_ms / 1000 * _PATIENCE_FACTOR
        try:
            return await self._committed(partitions, patience_s)
        except BrokerError as error:
            if not fenced:
                raise
            places = sorted(entry.partition for entry in fenced)
            extra = {"stage": live.name, "partitions": places, "reason": str(error)}
            _log.warning("offsets_unsettled", extra=extra)
        metadata = await loop.run_in_executor(live.pool, live.reader.group_metadata)
        ending = (
            loop.run_in_executor(live.pool, entry.producer.end_stray_offsets, metadata)
            for entry in fenced
        )
        await asyncio.gather(*ending)
        return await self._committed(partitions)

    async def _committed(
        self, partitions: Collection[int], timeout_s: float = TIMEOUT_S
    ) -> dict[int, CommittedOffset]:
        if not partitions:
            return {}
        loop = asyncio.get_running_loop()
        committed = self._live.reader.committed
        return await loop.run_in_executor(self._live.pool, committed, partitions, timeout_s)

    async def _load(self, entries: Collection[Owned]) -> None:
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
                if position.seq < committed[partition].seq:
                    live.stores.discard(partition, store)
                    continue
                await self._check_mailbox(partition, position, committed[partition].offset)
                memory = await loop.run_in_executor(
                    live.pool, Memory, live.bound, partition, store, position
                )
                waiting.pop(partition).loaded(memory)
            if waiting:
                await asyncio.sleep(_RETRY_S)
        message = (
            f"rows of {live.name} partitions {sorted(waiting)} are older than their committed "
            f"offsets: the changelog {live.bound.declaration.changelog} has lost records"
        )
        raise BrokerError(
            message, retryable=False, remedy="restore the changelog, or replay the mailbox"
        )

    async def _check_mailbox(self, partition: int, position: StatePosition, committed: int) -> None:
        """See that the mailbox goes on where the state stands."""
        live, loop = self._live, asyncio.get_running_loop()
        next_offset = position.next_offset
        span = await loop.run_in_executor(live.pool, live.reader.mailbox_span, partition)
        place = {"stage": live.name, "partition": partition, "position": next_offset}
        if span[1] < next_offset:
            changelog = live.bound.declaration.changelog
            raise TopologyError(
                f"{live.source}/{partition} ends at offset {span[1]}, but {live.name} has folded "
                f"it up to offset {next_offset}: the topic was cut or made anew",
                remedy=f"restore it; or, to begin with nothing, delete {changelog} and the offsets "
                f"of group {live.app.conf.id} as well",
            )
        if span[0] > next_offset:
            _log.error(
                "mailbox_begins_later",
                extra={
                    **place,
                    "first_offset": span[0],
                    "reason": "what lay between was removed before it was folded: retention is too "
                    "short, or the stage was away for too long",
                },
            )
        if committed not in (-1, next_offset):
            # The group was reset, or renamed: the position committed with the rows is the one to
            # trust.
            _log.warning("committed_offset_ignored", extra={**place, "committed": committed})
