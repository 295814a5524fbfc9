"""Forgets goals, tasks and sessions of a database that were done with long enough ago.

Any number of processes may do so at once: what one has deleted, another does not find.

Source: DESIGN law 9; seed queue-driven-agent-dispatch, "Fleet visibility".
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from streams.errors import TaskQueueUnavailable
from streams.observe import logs

__all__ = ["LOOK_EVERY_S", "Forgetful", "SqlRetention"]

_LOG = logs.logger(__name__)

LOOK_EVERY_S = 60.0
"""Between two looks for what is to be forgotten."""

_PAUSE_S = 0.1  # between two batches, so that those who work with the tables come between


class Forgetful(Protocol):
    """A store, as far as it forgets."""

    def forget(self, unchanged_ms: int, /) -> int:
        """Delete a batch of what has ended; see `TurnStore.forget`."""
        ...


class SqlRetention:
    """Made and used inside one event loop.

    Args: retention_ms: how long what has ended is kept; 0 keeps it for ever.
    """

    def __init__(
        self, store: Forgetful, retention_ms: int, *, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        self._store = store
        self._retention_ms = retention_ms
        self._look_every_s = look_every_s
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to forget."""
        if self._retention_ms > 0 and self._task is None:
            self._task = asyncio.create_task(self._run(), name="retention of turns")
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Forget nothing more; a batch that is under way ends.  Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                while found := await self._forget():
                    _LOG.info("turn_records_forgotten", extra={"count": found})
                    await asyncio.sleep(_PAUSE_S)
            except TaskQueueUnavailable as error:
                if not error.retryable:
                    raise
                _LOG.warning("turn_records_not_forgotten", extra={"reason": str(error)})
            await asyncio.sleep(self._look_every_s)

    async def _forget(self) -> int:
        work = asyncio.ensure_future(asyncio.to_thread(self._store.forget, self._retention_ms))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])  # or its connection is closed under it
            raise

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self.failed.done():
            self.failed.set_exception(error)
