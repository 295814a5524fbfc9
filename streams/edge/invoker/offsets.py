"""The offsets of the partitions that are owned now, committed in batches.

Commits are asynchronous and a fifth of a second apart: a late one costs repeated intents after a
crash, which are recognised by their dispatch; an eager one costs a request each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from streams.edge.invoker.ledger import OffsetLedger

__all__ = ["OwnedOffsets"]

_LOG = logging.getLogger("harn.invoker")

_COMMIT_EVERY_S = 0.2


class OwnedOffsets:
    """One ledger for each owned partition.

    Args:    commit: called on the event loop with next offsets by partition, must not wait.
    """

    def __init__(self, topic: str, commit: Callable[[Mapping[int, int]], None]) -> None:
        self._topic = topic
        self._commit_offsets = commit
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._ledgers: dict[int, OffsetLedger] = {}

    def received(self, partition: int, offset: int) -> OffsetLedger:
        """Note a fetched offset; return the ledger in which it has to settle."""
        ledger = self._ledgers.get(partition)
        if ledger is None:
            ledger = self._ledgers[partition] = OffsetLedger()
        try:
            ledger.received(offset)
        except ValueError as error:
            # The log was cut, or made anew: what is fetched now counts.
            _LOG.warning("invoker_went_back: %s/%d: %s", self._topic, partition, error)
            ledger = self._ledgers[partition] = OffsetLedger()
            ledger.received(offset)
        return ledger

    def give_up(self, partitions: Iterable[int]) -> dict[int, OffsetLedger]:
        """Stop committing these; return their ledgers, which may go on settling."""
        return {
            partition: ledger
            for partition in partitions
            if (ledger := self._ledgers.pop(partition, None)) is not None
        }

    def commit_soon(self) -> None:
        """Commit what has settled, with whatever settles until then."""
        if self._timer is None:
            self._timer = self._loop.call_later(_COMMIT_EVERY_S, self._commit)

    def commit_failed(self, partitions: Iterable[int]) -> None:
        """Commit again, as long as the partitions are owned."""
        for partition in partitions:
            ledger = self._ledgers.get(partition)
            if ledger is not None:
                ledger.commit_failed()
        self.commit_soon()

    def close(self) -> None:
        """Commit nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _commit(self) -> None:
        self._timer = None
        offsets = {
            partition: offset
            for partition, ledger in self._ledgers.items()
            if (offset := ledger.take_commit()) is not None
        }
        if offsets:
            self._commit_offsets(offsets)
