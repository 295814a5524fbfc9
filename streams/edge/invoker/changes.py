"""Waiting until something holds, looking only when something has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Changes"]


class Changes:
    """Says when to look again; costs nothing while nobody waits."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Let everybody who waits look again."""
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    async def until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Return True as soon as `holds`, False when it does not within `timeout_s`."""
        deadline_s = self._loop.time() + timeout_s
        while not holds():
            left_s = deadline_s - self._loop.time()
            if left_s <= 0:
                return False
            if self._next is None:
                self._next = self._loop.create_future()
            await asyncio.wait([self._next], timeout=left_s)
        return True
