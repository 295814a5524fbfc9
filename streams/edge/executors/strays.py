"""Functions that were given up and run on all the same: threads and tasks nobody can end.

Each holds a thread or a place in the event loop for as long as it likes.  A few are borne, so that
one bad event does not stop the others; at the bound the process shall be started anew rather than
starve: that is what `on_full` is for.

Source: SEMANTICS 2.5; DESIGN law 9.
"""

from __future__ import annotations

from collections.abc import Callable

from streams.edge.executors.call import Call
from streams.observe import logs

__all__ = ["STRAYS_MAX", "Strays"]

STRAYS_MAX = 16
"""A quarter of the handlers that an invoker runs at once by default."""

_LOG = logs.logger(__name__)


class Strays:
    """Counts them.  Used on the event loop.

    Args:    strays_max: so many fill it.  on_full: called once, with how many there are.
             on_change: called with each new count.
    """

    def __init__(
        self, strays_max: int, on_full: Callable[[int], None], on_change: Callable[[int], None]
    ) -> None:
        self._strays_max = strays_max
        self._on_full = on_full
        self._on_change = on_change
        self._calls: set[Call] = set()
        self._was_full = False

    def __contains__(self, call: Call) -> bool:
        """Whether a call was given up and still runs."""
        return call in self._calls

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._calls)

    def add(self, call: Call) -> None:
        """Note that a call was given up."""
        self._calls.add(call)
        _LOG.error(
            "handler_left_alone",
            extra={
                "attempt_id": call.context.attempt_id,
                "binding_key": call.context.binding_key,
                "runs_in": call.handler.runs_in,
                "strays": len(self._calls),
                "strays_max": self._strays_max,
            },
        )
        self._on_change(len(self._calls))
        if len(self._calls) >= self._strays_max and not self._was_full:
            self._was_full = True
            self._on_full(len(self._calls))

    def ended(self, call: Call) -> None:
        """Note that a call which was given up has ended after all."""
        self._calls.discard(call)
        _LOG.info(
            "handler_ended_late",
            extra={"attempt_id": call.context.attempt_id, "strays": len(self._calls)},
        )
        self._on_change(len(self._calls))
