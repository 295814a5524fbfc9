"""Async functions, as tasks of the event loop.

A task ends early by being cancelled: `asyncio.CancelledError` is raised where it waits.  One that
swallows it runs on as a stray.
"""

from __future__ import annotations

import asyncio

from streams.edge.executors.call import Call, OnEnd, failure
from streams.edge.executors.outcome import INTERRUPTED, answered
from streams.edge.executors.strays import Strays
from streams.handler_api import Event

__all__ = ["LoopExecutor"]


class LoopExecutor:
    """Runs calls on the event loop that it is made in."""

    def __init__(self, result_bytes_max: int, on_end: OnEnd, strays: Strays) -> None:
        self._loop = asyncio.get_running_loop()
        self._result_bytes_max = result_bytes_max
        self._on_end = on_end
        self._strays = strays
        self._calls: dict[asyncio.Task[None], Call] = {}
        self._tasks: dict[Call, asyncio.Task[None]] = {}

    def start(self, call: Call) -> None:
        """Run it; it takes its first step when the loop comes to it."""
        task = self._loop.create_task(self._run(call))
        self._calls[task], self._tasks[call] = call, task

    def interrupt(self, call: Call) -> None:
        """Ask it to end now."""
        task = self._tasks[call]
        task.add_done_callback(lambda _: self._ended(call))  # also of one that never began
        task.cancel()

    def abandon(self, call: Call) -> None:
        """Leave it alone: it does not end."""
        self._strays.add(call)

    def running(self) -> Call | None:
        """Return whose task runs this moment.  From any thread."""
        task = asyncio.current_task(self._loop)
        return None if task is None else self._calls.get(task)

    def __len__(self) -> int:
        """Return how many have not ended."""
        return len(self._calls)

    async def _run(self, call: Call) -> None:
        try:
            value = await call.handler(Event(call.event), call.context)
            outcome = answered(call.purpose, value, self._result_bytes_max)
        except GeneratorExit:
            raise  # the loop is gone, and with it everybody who could be told
        except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
            task = self._tasks.get(call)
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                outcome = INTERRUPTED
            else:
                outcome = failure(call, error)
        self._forget(call)
        self._on_end(call, outcome)

    def _ended(self, call: Call) -> None:
        if call in self._tasks:
            self._forget(call)
            self._on_end(call, INTERRUPTED)

    def _forget(self, call: Call) -> None:
        del self._calls[self._tasks.pop(call)]
        if call in self._strays:
            self._strays.ended(call)
