"""What services that follow a log share: one task, and a thread of its own for the consumer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from streams.settings import Settings

__all__ = ["BACKOFF_FIRST_S", "BACKOFF_MAX_S", "Follower"]

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0

_Result = TypeVar("_Result")


class Follower:
    """Base of an `EdgeService` that follows a log in one task until it is stopped."""

    name = "follower"

    def __init__(self, settings: Settings) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settings = settings
        self._stopping = asyncio.Event()
        # The consumer lives in a thread of its own: a read waits for records.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self.name)
        self._following: asyncio.Task[None] | None = None

    def _begin(self, following: Coroutine[Any, Any, None]) -> None:
        """Follow; what it raises fails the service."""
        self._following = asyncio.create_task(following, name=self.name)
        self._following.add_done_callback(self._ended)

    async def _end(self) -> None:
        """Ask the task to stop, and give it the drain time; idempotent."""
        self._stopping.set()
        if self._following is not None:
            await asyncio.wait([self._following], timeout=self._settings.drain_ms / 1_000)
            self._following.cancel()
            self._following = None

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the service is stopped meanwhile."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _in_thread(self, call: Callable[..., _Result], *arguments: object) -> _Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, call, *arguments)

    def _ended(self, following: asyncio.Task[None]) -> None:
        if following.cancelled() or self.failed.done():
            return
        error = following.exception()
        if error is not None:
            self.failed.set_exception(error)
