"""Forgets goals, tasks and sessions of a database that were done with long enough ago.

Any number of processes may do so at once: what one has deleted, another does not find.

Source: DESIGN law 9; seed queue-driven-agent-dispatch, "Fleet visibility".
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from streams.edge.turns.forgetting import LOOK_EVERY_S, Forgetting
from streams.observe import logs

__all__ = ["Forgetful", "SqlRetention"]

_LOG = logs.logger(__name__)

_PAUSE_S = 0.1  # between two batches, so that those who work with the tables come between


class Forgetful(Protocol):
    """A store, as far as it forgets."""

    def forget(self, unchanged_ms: int, /) -> int:
        """Delete a batch of what has ended; see `TurnStore.forget`."""
        ...


class SqlRetention(Forgetting):
    """Forgets in the tables of a database, batch by batch."""

    def __init__(
        self, store: Forgetful, retention_ms: int, *, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        super().__init__(retention_ms, look_every_s=look_every_s)
        self._store = store

    async def sweep(self) -> None:
        """Delete what is due.  Raises: TaskQueueUnavailable."""
        while found := await self._forget():
            _LOG.info("turn_records_forgotten", extra={"count": found})
            await asyncio.sleep(_PAUSE_S)

    async def _forget(self) -> int:
        work = asyncio.ensure_future(asyncio.to_thread(self._store.forget, self.retention_ms))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])  # or its connection is closed under it
            raise
