"""Reads a worker's manifest anew when it is told to: SIGHUP, for `harn worker run`.

Jobs that begin from then on go by what was read; those that run end as they began.  A manifest with
problems is logged, and the one before stays.  Modules that were imported stay as they are, whatever
their files say by now: new code needs a new process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from streams.edge.worker.consumer import Consumer
from streams.errors import HarnError
from streams.observe import logs

__all__ = ["Adopter", "Reloader"]

_LOG = logs.logger(__name__)


class Adopter(Protocol):
    """Goes by a manifest."""

    async def adopt(self, consumer: Consumer) -> None:
        """Go by this one from now on."""
        ...


class Reloader:
    """One reading at a time; asking while it is under way means one more.

    Args:    load: reads the manifest, on a thread: it may import modules that are new.
    """

    def __init__(self, load: Callable[[], Consumer], worker: Adopter) -> None:
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
                consumer = await asyncio.to_thread(self._load)
                await self._worker.adopt(consumer)
            except HarnError as error:
                _LOG.error("worker_manifest_not_reloaded", extra={"reason": str(error)})
            else:
                _LOG.info("worker_manifest_reloaded", extra={"triggers": len(consumer)})
