"""Looks, from a thread, whether the event loop still turns; says which handler holds it up.

An async function that never waits stops everything that shares its loop: other handlers, the
renewal of leases, timeouts.  Nothing can end it from outside.  So it is named in the log while it
lasts; and once it has lasted for longer than leases do, this process is of no use to anybody any
more, and is ended.

Time counts only while the watch itself runs: a process that was stopped, or starved, is not to
blame for that.

Source: DESIGN "An invocation"; FINDINGS on long work in a consuming loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

from streams.edge.executors.call import Call
from streams.observe import logs

__all__ = ["LoopWatch"]

_LOG = logs.logger(__name__)

TICK_S = 0.5
TOLD_AFTER_S = 1.0
LIMIT_S_MIN = 5.0
"""No loop is given up before: garbage collection, or a slow import, takes seconds at times."""


class LoopWatch:
    """A watch over the loop that it is made in, as long as calls run there.

    Args:    running: says, from any thread, whose step runs now.  watched: whether to look at all.
             limit_s: how long the loop may stand still, without a nearer timeout of the call.
             on_blocked: told, from the watch's thread, each further time that it is too long.
             on_stuck: told, from there, once it is hopeless; it does not return.
    """

    def __init__(
        self,
        *,
        running: Callable[[], Call | None],
        watched: Callable[[], bool],
        limit_s: float,
        on_blocked: Callable[[], None],
        on_stuck: Callable[[Call | None, float], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._running = running
        self._watched = watched
        self._limit_s = limit_s
        self._on_blocked = on_blocked
        self._on_stuck = on_stuck
        self._tick_s = TICK_S
        self._answered = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer; the thread ends by itself."""
        self._stopping.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended.  Not on the event loop."""
        self._thread.join(timeout_s)

    def _watch(self) -> None:
        while not self._stopping.wait(self._tick_s) and not self._loop.is_closed():
            if self._watched() and not self._turns():
                return

    def _turns(self) -> bool:
        """Ask the loop for a sign, and wait for it; False when there will be none."""
        self._answered.clear()
        try:
            self._loop.call_soon_threadsafe(self._answered.set)
        except RuntimeError:
            return False  # the loop is closed
        ticks, told_s = 0, TOLD_AFTER_S
        while not self._answered.wait(self._tick_s):
            if self._stopping.is_set():
                return False
            ticks += 1
            still_s = ticks * self._tick_s
            call = self._running()
            if still_s >= told_s:
                told_s *= 2
                self._tell(call, still_s)
            if still_s >= self._limit_of(call):
                self._on_stuck(call, still_s)
                return False
        return True

    def _limit_of(self, call: Call | None) -> float:
        timeout_ms = None if call is None else call.timeout_ms
        limit_s = self._limit_s if timeout_ms is None else min(timeout_ms / 1_000, self._limit_s)
        return max(limit_s, LIMIT_S_MIN)

    def _tell(self, call: Call | None, still_s: float) -> None:
        where = _place_of(sys._current_frames().get(self._loop_thread))  # noqa: SLF001 - documented
        extra = {"seconds": still_s, "where": where}
        if call is not None:
            extra["attempt_id"] = call.context.attempt_id
            extra["binding_key"] = call.context.binding_key
        _LOG.warning("handler_blocks_loop", extra=extra)
        self._on_blocked()


def _place_of(frame: FrameType | None) -> str:
    """Return where a thread is, the innermost line first, as far as a log line should hold it."""
    if frame is None:
        return "unknown"
    lines = traceback.extract_stack(frame)[-3:]
    return " < ".join(f"{line.filename}:{line.lineno} {line.name}" for line in reversed(lines))
