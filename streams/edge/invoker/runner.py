"""Runs handlers to their outcome: async ones as tasks of the event loop, plain ones on threads.

The user's code may raise anything at all; here is the wall that it cannot pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from streams.core.wire import Invoke
from streams.edge.invoker.execution import Execution, context_of
from streams.edge.invoker.outcome import INTERRUPTED, Outcome, raised, returned
from streams.edge.invoker.threads import HandlerThreads
from streams.handler_api import Context, Event, Handler, Retryable, Terminal

__all__ = ["HandlerRunner"]

_LOG = logging.getLogger("harn.handler")


class HandlerRunner:
    """The handlers that run in this process.

    Args:    threads_max: plain handlers that run at once.  result_bytes_max: of a result's JSON.
             on_end: called on the event loop with each outcome, exactly once for every `start`.
    """

    def __init__(
        self, threads_max: int, result_bytes_max: int, on_end: Callable[[Execution, Outcome], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._result_bytes_max = result_bytes_max
        self._on_end = on_end
        self._threads: HandlerThreads[tuple[Execution, Outcome]] = HandlerThreads(
            self._loop, threads_max, self._on_thread_ended
        )

    def start(self, execution: Execution, handler: Handler, intent: Invoke) -> None:
        """Run the handler with the intent's event."""
        event, context = Event(intent["event"]), context_of(intent)
        if handler.is_async:
            running = self._run(execution, handler, event, context)
            execution.task = self._loop.create_task(running)
        else:
            bound = self._result_bytes_max
            self._threads.submit(partial(_run_on_thread, execution, handler, event, context, bound))

    def stop(self) -> None:
        """Let the threads end with what they do now."""
        self._threads.stop()

    async def _run(
        self, execution: Execution, handler: Handler, event: Event, context: Context
    ) -> None:
        try:
            outcome = returned(await handler(event, context), self._result_bytes_max)
        except GeneratorExit:
            raise  # the loop is gone, and with it everybody who could be told
        except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
            task = execution.task
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                outcome = INTERRUPTED
            else:
                outcome = _failure(context, error)
        self._on_end(execution, outcome)

    def _on_thread_ended(self, ended: tuple[Execution, Outcome]) -> None:
        self._on_end(*ended)


def _run_on_thread(
    execution: Execution, handler: Handler, event: Event, context: Context, bytes_max: int
) -> tuple[Execution, Outcome]:
    """Run a plain function to its outcome, unless the process has stopped before its turn came."""
    if execution.ended:
        return execution, INTERRUPTED
    try:
        return execution, returned(handler(event, context), bytes_max)
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
        return execution, _failure(context, error)


def _failure(context: Context, error: BaseException) -> Outcome:
    """Return the outcome of a handler that raised, and tell its author where."""
    outcome = raised(error)
    expected = isinstance(error, Terminal | Retryable)
    _LOG.warning(
        "handler_failed",
        extra={
            "attempt_id": context.attempt_id,
            "binding_key": context.binding_key,
            "error": outcome.error,
        },
        exc_info=None if expected else error,
    )
    return outcome
