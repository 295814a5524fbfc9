"""Records of one key as they are read: what came between two words of one writer.

Source: DESIGN "Topics".
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["KeyWatches", "Passed", "Watch"]


class Passed(NamedTuple):
    """A record that was read; the value None forgets its key."""

    offset: int
    value: bytes | None


class Watch:
    """What was read of a key since it is watched; used inside one event loop."""

    def __init__(self) -> None:
        self._passed: dict[int, Passed] = {}
        self._more = asyncio.Event()

    def take(self, passed: Passed) -> None:
        """Note a record; one that is read again is the same."""
        self._passed[passed.offset] = passed
        self._more.set()

    async def until(self, offset: int) -> None:
        """Wait until the record at this offset was read."""
        while offset not in self._passed:
            self._more.clear()
            await self._more.wait()

    def last_between(self, after: int, before: int) -> Passed | None:
        """Return the last record that was read between two offsets."""
        found = [offset for offset in self._passed if after < offset < before]
        return self._passed[max(found)] if found else None


class KeyWatches:
    """Who watches which key; `passed` is for the threads that read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._watches: dict[str, list[Watch]] = {}

    @contextmanager
    def watching(self, key: str) -> Iterator[Watch]:
        """Watch a key during the block."""
        watch = Watch()
        with self._lock:
            self._watches.setdefault(key, []).append(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches[key].remove(watch)
                if not self._watches[key]:
                    del self._watches[key]

    def passed(self, key: str, offset: int, value: bytes | None) -> None:
        """Tell of a record (a reader's thread)."""
        if not self._watches:
            return
        with self._lock:
            for watch in self._watches.get(key, ()):
                self._loop.call_soon_threadsafe(watch.take, Passed(offset, value))
