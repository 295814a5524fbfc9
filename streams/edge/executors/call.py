"""One call of a user's function, from its start to its one outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from streams.core.wire import InvokePurpose, TriggerEvent
from streams.edge.executors.outcome import Outcome, answered, raised
from streams.handler_api import Cancelled, Context, Event, Handler, Retryable, Terminal

__all__ = ["Call", "OnBegan", "OnEnd", "failure", "run_here"]

_LOG = logging.getLogger("harn.handler")

OnEnd = Callable[["Call", Outcome], None]
"""Called on the event loop with what a call came to; a call that has ended already is ignored."""

OnBegan = Callable[["Call"], None]
"""Called on the event loop when a function is called, where that is long after its start."""


@dataclass(eq=False, slots=True, kw_only=True)
class Call:
    """A call.  Compared by identity."""

    handler: Handler
    event: TriggerEvent
    context: Context
    purpose: InvokePurpose
    timeout_ms: int | None
    ended: Callable[[Outcome], None]
    """Told the outcome, once."""
    begun: bool = False
    """The function was called; noted by whoever calls it, on whatever thread."""
    verdict: Outcome | None = None
    """Decided before it ended: then what it answers is of no account."""
    is_over: bool = False
    """Its outcome is told; whatever it still does is of no account."""
    timer: asyncio.TimerHandle | None = None
    """Its timeout, later the end of its grace."""


def failure(call: Call, error: BaseException) -> Outcome:
    """Return the outcome of a call that raised, and tell the function's author where."""
    outcome = raised(error, call.purpose)
    if outcome.outcome in {"failed", "denied"} and call.verdict is None:
        _tell(call.context, error, outcome)
    return outcome


def _tell(context: Context, error: BaseException, outcome: Outcome) -> None:
    expected = isinstance(error, Terminal | Retryable | Cancelled)
    _LOG.warning(
        "handler_failed",
        extra={
            "attempt_id": context.attempt_id,
            "binding_key": context.binding_key,
            "error": outcome.error,
        },
        exc_info=None if expected else error,
    )


def run_here(call: Call, result_bytes_max: int) -> Outcome:
    """Run a plain function to its outcome, whatever it raises."""
    try:
        value = call.handler(Event(call.event), call.context)
        return answered(call.purpose, value, result_bytes_max)
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
        return failure(call, error)
