"""Ends this process when its orderly end does not come: a thread may hang in a client's call.

Python waits for its threads before it exits, and a thread inside a C call cannot be interrupted.
"""

from __future__ import annotations

import os
import threading

from streams.errors import HarnError
from streams.observe import logs

__all__ = ["end_within"]

_log = logs.logger(__name__)


def end_within(seconds: float) -> None:
    """End the process with code 1 after this many seconds if it still runs then.

    The timer itself keeps nothing alive.  A process that had nothing to do but exit is not in the
    way of anybody: its supervisor starts the next one.
    """

    def end() -> None:
        alive = [thread.name for thread in threading.enumerate() if not thread.daemon]
        _log.error("stop_overdue", extra={"seconds": seconds, "threads": ",".join(alive)})
        os._exit(HarnError.exit_code)

    overdue = threading.Timer(seconds, end)
    overdue.daemon = True
    overdue.start()
