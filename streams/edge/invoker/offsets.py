"""The partitions that are owned now, and their offsets, committed in batches.

Commits are asynchronous and a tenth of a second apart: a late one costs repeated intents after a
crash, which are recognised by their dispatch; an eager one costs a request each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from streams.edge.invoker.execution import Execution
from streams.edge.invoker.lane import Lane
from streams.observe import logs

__all__ = ["OwnedOffsets"]

_LOG = logs.logger(__name__)

_COMMIT_EVERY_S = 0.1


class OwnedOffsets:
    """One lane for each owned partition.

    Args:    commit: called on the event loop with next offsets by partition, must not wait.
    """

    def __init__(self, topic: str, commit: Callable[[Mapping[int, int]], None]) -> None:
        self._topic = topic
        self._commit_offsets = commit
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._lanes: dict[int, Lane[Execution]] = {}

    def received(self, partition: int, offset: int) -> Lane[Execution]:
        """Note a fetched offset; return the lane in which it has to settle."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane()
        try:
            lane.ledger.received(offset)
        except ValueError as error:
            # The log was cut, or made anew: what is fetched now counts.
            place = f"{self._topic}/{partition}"
            _LOG.warning("invoker_went_back", extra={"place": place, "reason": str(error)})
            lane = self._lanes[partition] = Lane()
            lane.ledger.received(offset)
        return lane

    def give_up(self, partitions: Iterable[int]) -> dict[int, Lane[Execution]]:
        """Stop committing these; return their lanes, which may go on settling."""
        return {
            partition: lane
            for partition in partitions
            if (lane := self._lanes.pop(partition, None)) is not None
        }

    def commit_soon(self) -> None:
        """Commit what has settled, with whatever settles until then."""
        if self._timer is None:
            self._timer = self._loop.call_later(_COMMIT_EVERY_S, self._commit)

    def commit_failed(self, partitions: Iterable[int]) -> None:
        """Commit again, as long as the partitions are owned."""
        for partition in partitions:
            lane = self._lanes.get(partition)
            if lane is not None:
                lane.ledger.commit_failed()
        self.commit_soon()

    def close(self) -> None:
        """Commit nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _commit(self) -> None:
        self._timer = None
        offsets = {
            partition: offset
            for partition, lane in self._lanes.items()
            if (offset := lane.ledger.take_commit()) is not None
        }
        if offsets:
            self._commit_offsets(offsets)
