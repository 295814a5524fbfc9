"""The end of a worker whose event loop does not turn any more: nothing can be done inside it.

Its claims are not renewed, so that others have its jobs as they run out; the process is of no use
to anybody, and only its end makes room for another one.
"""

from __future__ import annotations

from collections.abc import Callable

from streams.edge.executors.call import Call
from streams.errors import InvokerStuck
from streams.observe import logs

__all__ = ["LastLine"]

_LOG = logs.logger(__name__)


class LastLine:
    """Called on the thread that watches the event loop.

    Args:    exit_now: ends the process with a code, whatever else it does.
    """

    def __init__(self, exit_now: Callable[[int], object]) -> None:
        self._exit_now = exit_now

    def __call__(self, culprit: Call | None, seconds: float) -> None:
        """Say which job it was, and end the process."""
        attempt_id = None if culprit is None else culprit.context.attempt_id
        _LOG.critical("worker_stuck", extra={"seconds": seconds, "attempt_id": attempt_id})
        self._exit_now(InvokerStuck.exit_code)
