"""How a handler learns that it shall end: a token that flips once, seen by async code and threads.

    if context.cancelled: ...                # anywhere
    context.cancelled.check()                # raises Cancelled when it has flipped
    context.cancelled.wait(5)                # a thread: returns early when it flips
    await context.cancelled                  # a coroutine: returns when it flips

Nobody is forced: a function that never looks is cut off, or left to itself, by whoever runs it.

Source: SEMANTICS 2.5; DESIGN "Cancel and shutdown".
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Literal

__all__ = ["CancelReason", "CancelToken", "Cancelled"]

CancelReason = Literal["cancelled", "timeout", "shutdown"]

# One lock for all tokens: it is held for a few steps, and only by who waits, or flips.
_LOCK = threading.Lock()


class Cancelled(Exception):  # noqa: N818 - it says what happened, as handlers read
    """Raised by `CancelToken.check`; a handler may let it pass, or clean up and raise it again."""

    def __init__(self, reason: CancelReason) -> None:
        super().__init__(reason)
        self.reason = reason


class CancelToken:
    """Flips at most once, except that what follows a shutdown says more than the shutdown.

    Args:    clock: seconds that only grow; what the timeout is measured by.
    """

    __slots__ = ("_clock", "_deadline_s", "_reason", "_wakers")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:  # noqa: TID251 - an edge
        self._clock = clock
        self._reason: CancelReason | None = None
        self._wakers: list[Callable[[], None]] = []
        self._deadline_s: float | None = None

    def __bool__(self) -> bool:
        """Whether it has flipped."""
        return self._reason is not None

    @property
    def reason(self) -> CancelReason | None:
        """Return why: somebody asked for it, the time is up, or the process stops."""
        return self._reason

    @property
    def seconds_left(self) -> float | None:
        """Return the time until the timeout, never below 0; None when there is none."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._clock())

    def check(self) -> None:
        """Raise Cancelled when it has flipped."""
        if self._reason is not None:
            raise Cancelled(self._reason)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block a thread until it flips or `timeout_s` have passed; return whether it has."""
        flipped = threading.Event()
        self._add(flipped.set)
        try:
            return flipped.wait(timeout_s)
        finally:
            self._remove(flipped.set)

    def __await__(self) -> Generator[Any, None, CancelReason]:
        """Wait until it flips; returns why."""
        loop = asyncio.get_running_loop()
        flipped: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            loop.call_soon_threadsafe(_settle, flipped)

        self._add(wake)
        try:
            yield from flipped.__await__()
        finally:
            self._remove(wake)
        assert self._reason is not None, "who is woken finds it flipped"
        return self._reason

    def expires_in(self, timeout_ms: int | None) -> None:
        """Note that the timeout begins now.  For whoever runs the handler."""
        if timeout_ms is not None:
            self._deadline_s = self._clock() + timeout_ms / 1_000

    def flip(self, reason: CancelReason) -> None:
        """Wake everybody who waits.  For whoever runs the handler, from any thread."""
        with _LOCK:
            if self._reason is None or self._reason == "shutdown":
                self._reason = reason
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def _add(self, wake: Callable[[], None]) -> None:
        with _LOCK:
            if self._reason is None:
                self._wakers.append(wake)
                return
        wake()

    def _remove(self, wake: Callable[[], None]) -> None:
        with _LOCK:
            if wake in self._wakers:
                self._wakers.remove(wake)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
