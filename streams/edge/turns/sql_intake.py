"""Where the slots of a worker get turns from: one of them looks into the database, the others wait.

The database is looked at again at once while there are turns, then after 5 ms, and half as often
each time that there is none, down to four times a second.  So a turn that comes in a busy time
waits for some milliseconds, and a fleet that has nothing to do costs its database next to nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from streams.edge.turns.task_queue import Taken
from streams.errors import TaskQueueUnavailable
from streams.observe import logs

__all__ = ["LOOK_FIRST_S", "LOOK_MAX_S", "SqlIntake"]

LOOK_FIRST_S = 0.005
LOOK_MAX_S = 0.25

_OUTAGE_S = 2.0
"""Before a database that is away is asked again."""

_LOG = logs.logger(__name__)


class SqlIntake:
    """Hands out turns, to any number of threads.

    Args: take: takes one, as `Deliveries.take`.  stopping: once set, nothing more is taken.
    """

    def __init__(self, take: Callable[[], Taken | None], stopping: threading.Event) -> None:
        self._take = take
        self._stopping = stopping
        self._turn = threading.Lock()
        self._look_s = LOOK_FIRST_S

    def next(self) -> Taken | None:
        """Wait for a turn; None once the worker stops.

        Raises: TaskQueueUnavailable, when waiting does not help.
        """
        with self._turn:
            while not self._stopping.is_set():
                try:
                    taken = self._take()
                except TaskQueueUnavailable as error:
                    if not error.retryable:
                        raise
                    extra = {"reason": str(error), "wait_s": _OUTAGE_S}
                    _LOG.warning("turn_queue_away", extra=extra)
                    self._stopping.wait(_OUTAGE_S)
                    continue
                if taken is not None:
                    self._look_s = LOOK_FIRST_S
                    return taken
                self._stopping.wait(self._look_s)
                self._look_s = min(2 * self._look_s, LOOK_MAX_S)
        return None
