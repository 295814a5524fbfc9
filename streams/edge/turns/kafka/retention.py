"""Forgets, in the partitions that a worker owns, what was done with long enough ago.

Goals and tasks first, then sessions that have none left: each in batches that go into the owner's
transactions, between those of turns.

Source: DESIGN law 9, "A turn"; ADR 25.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from streams.edge.turns.forgetting import LOOK_EVERY_S, Forgetting
from streams.edge.turns.kafka.partition import OwnedPartition
from streams.observe import logs

__all__ = ["Retention"]

_LOG = logs.logger(__name__)

_BATCH = 250
_SHARE = 10
"""Of the time for which things are kept: they are looked for so often at least."""


class Retention(Forgetting):
    """Forgets what the partitions of a worker have as done with.

    Args: retention_ms: how long what has ended is kept; 0 keeps it for ever.
          now_ms: ms since the epoch.
          fail: told what ends it.
    """

    def __init__(
        self,
        partitions: Mapping[int, OwnedPartition],
        retention_ms: int,
        *,
        now_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
    ) -> None:
        every_s = min(LOOK_EVERY_S, retention_ms / 1_000 / _SHARE)
        super().__init__(retention_ms, look_every_s=every_s)
        self._partitions = partitions
        self._now_ms = now_ms
        self._fail = fail
        self.failed.add_done_callback(self._tell)

    def _tell(self, failed: asyncio.Future[None]) -> None:
        if not failed.cancelled() and (error := failed.exception()) is not None:
            self._fail(error)

    async def sweep(self) -> None:
        """Forget what is due in each partition, and say how much."""
        for partition in list(self._partitions.values()):
            for ended in (True, False):
                count = await self._sweep(partition, ended=ended)
                if count:
                    extra = {"partition": partition.number, "count": count}
                    _LOG.info("turn_records_forgotten", extra=extra)

    async def _sweep(self, partition: OwnedPartition, *, ended: bool) -> int:
        """Forget what is due of a partition; return how much that was."""
        owner, before_ms = partition.owner, self._now_ms() - self.retention_ms
        count = kept = 0
        while partition.shelf.is_built and not (partition.gone or owner.lanes.stopped):
            owner.parting.listen()
            due = await partition.shelf.due(before_ms, limit=_BATCH, offset=kept, ended=ended)
            if not due or partition.gone or owner.lanes.stopped:
                break
            forgotten = owner.parting.forget(
                due, owner.stands_at, before_ms=before_ms, retention_ms=self.retention_ms
            )
            kept += len(due) - forgotten
            count += forgotten
            if forgotten and not await partition.durable():
                break
        return count
