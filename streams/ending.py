"""Ends this process when its orderly end does not come: a thread may hang in a client's call.

Python waits for its threads before it exits, and a thread inside a C call cannot be interrupted.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from traceback import StackSummary, walk_stack

from streams.errors import HarnError
from streams.observe import logs

__all__ = ["end_within"]

_log = logs.logger(__name__)

_FRAMES = 6
"""Innermost calls of a thread that are told: what hangs is a client's call, and who made it."""


def end_within(seconds: float) -> None:
    """End the process with code 1 after this many seconds if it still runs then.

    The timer itself keeps nothing alive.  A process that had nothing to do but exit is not in the
    way of anybody: its supervisor starts the next one.
    """

    def end() -> None:
        try:
            alive = [thread for thread in threading.enumerate() if not thread.daemon]
            threads = ",".join(thread.name for thread in alive)
            calls = {thread.name: _calls_of(thread) for thread in alive}
            extra = {"seconds": seconds, "threads": threads, "calls": calls}
            _log.error("stop_overdue", extra=extra)
        finally:
            os._exit(HarnError.exit_code)

    overdue = threading.Timer(seconds, end)
    overdue.daemon = True
    overdue.start()


def _calls_of(thread: threading.Thread) -> str:
    """Return what a thread is at, innermost first; no values, which may be anybody's."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - it has no other name
    if frame is None:
        return ""  # it ended just now
    stack = StackSummary.extract(walk_stack(frame), limit=_FRAMES, lookup_lines=False)
    return " < ".join(f"{call.name} ({Path(call.filename).name}:{call.lineno})" for call in stack)
