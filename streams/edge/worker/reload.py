"""Reads a worker's manifest anew when it is told to: by SIGHUP, for workers of jobs and of turns.

What begins from then on goes by what was read; what runs ends as it began.  A manifest with
problems is logged, and the one before stays.  Modules that were imported stay as they are, whatever
their files say by now: new code needs a new process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from streams.errors import HarnError
from streams.observe import logs

__all__ = ["Adopter", "Reloader"]

_LOG = logs.logger(__name__)


_Read = TypeVar("_Read", bound=Sized)
_Taken_contra = TypeVar("_Taken_contra", contravariant=True)


class Adopter(Protocol[_Taken_contra]):
    """Goes by a manifest."""

    async def adopt(self, read: _Taken_contra, /) -> None:
        """Go by this one from now on."""
        ...


class Reloader(Generic[_Read]):
    """One reading at a time; asking while it is under way means one more.

    Args:    load: reads the manifest, on a thread: it may import modules that are new.
             counts: what it has so many of, for the log.
    """

    def __init__(
        self, load: Callable[[], _Read], worker: Adopter[_Read], *, counts: str = "triggers"
    ) -> None:
        self._counts = counts
        self._load = load
        self._worker = worker
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def ask(self) -> None:
        """Ask for a reading; returns at once."""
        self._asked.set()

    async def stop(self) -> None:
        """Read no more; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                read = await asyncio.to_thread(self._load)
                await self._worker.adopt(read)
            except HarnError as error:
                _LOG.error("worker_manifest_not_reloaded", extra={"reason": str(error)})
            else:
                _LOG.info("worker_manifest_reloaded", extra={self._counts: len(read)})
