"""Forgets, in the partitions that a worker owns, what was done with long enough ago.

Goals and tasks first, then sessions that have none left: each in batches that go into the owner's
transactions, between those of turns.

Source: DESIGN law 9, "A turn"; ADR 25.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from streams.edge.turns.kafka.partition import OwnedPartition
from streams.observe import logs

__all__ = ["LOOK_EVERY_S", "Retention"]

_LOG = logs.logger(__name__)

LOOK_EVERY_S = 60.0
"""Between two looks for what is to be forgotten, unless it is kept for less than ten times that."""

_BATCH = 250
_SHARE = 10


class Retention:
    """Made and used inside one event loop.

    Args: retention_ms: how long what has ended is kept; 0 keeps it for ever.
          now_ms: ms since the epoch.
    """

    def __init__(
        self,
        partitions: Mapping[int, OwnedPartition],
        retention_ms: int,
        *,
        now_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._partitions = partitions
        self._retention_ms = retention_ms
        self._every_s = min(LOOK_EVERY_S, retention_ms / 1_000 / _SHARE)
        self._now_ms = now_ms
        self._fail = fail
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to forget."""
        if self._retention_ms > 0:
            self._task = asyncio.create_task(self._run(), name="retention of turns")
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Forget nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            for partition in list(self._partitions.values()):
                for ended in (True, False):
                    count = await self._sweep(partition, ended=ended)
                    if count:
                        extra = {"partition": partition.number, "count": count}
                        _LOG.info("turn_records_forgotten", extra=extra)

    async def _sweep(self, partition: OwnedPartition, *, ended: bool) -> int:
        """Forget what is due of a partition; return how much that was."""
        owner, before_ms = partition.owner, self._now_ms() - self._retention_ms
        count = kept = 0
        while partition.shelf.is_built and not (partition.gone or owner.lanes.stopped):
            owner.parting.listen()
            due = await partition.shelf.due(before_ms, limit=_BATCH, offset=kept, ended=ended)
            if not due or partition.gone or owner.lanes.stopped:
                break
            forgotten = owner.parting.forget(
                due, owner.stands_at, before_ms=before_ms, retention_ms=self._retention_ms
            )
            kept += len(due) - forgotten
            count += forgotten
            if forgotten and not await partition.durable():
                break
        return count
