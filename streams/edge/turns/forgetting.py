"""Looks now and then for what is to be forgotten, for as long as a process runs."""

from __future__ import annotations

import abc
import asyncio

from streams.errors import TaskQueueUnavailable
from streams.observe import logs

__all__ = ["LOOK_EVERY_S", "Forgetting"]

_LOG = logs.logger(__name__)

LOOK_EVERY_S = 60.0
"""Between two looks for what is to be forgotten."""


class Forgetting(abc.ABC):
    """Made and used inside one event loop; `failed` ends with what no waiting mends.

    Args: retention_ms: how long what has ended is kept; 0 keeps it for ever.
    """

    def __init__(self, retention_ms: int, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self.retention_ms = retention_ms
        self._look_every_s = look_every_s
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @abc.abstractmethod
    async def sweep(self) -> None:
        """Forget all that is due now.  Raises: TaskQueueUnavailable."""

    def start(self) -> None:
        """Begin to forget."""
        if self.retention_ms > 0 and self._task is None:
            self._task = asyncio.create_task(self._run(), name="retention of turns")
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Forget nothing more; what is under way ends.  Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                await self.sweep()
            except TaskQueueUnavailable as error:
                if not error.retryable:
                    raise
                _LOG.warning("turn_records_not_forgotten", extra={"reason": str(error)})
            await asyncio.sleep(self._look_every_s)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self.failed.done():
            self.failed.set_exception(error)
