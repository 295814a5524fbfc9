"""Plain functions, on threads.

A thread cannot be ended from outside: its function sees the token flip, or runs on as a stray, and
another thread takes its place.
"""

from __future__ import annotations

import asyncio
from functools import partial

from streams.edge.executors.call import Call, OnEnd, run_here
from streams.edge.executors.outcome import INTERRUPTED, Outcome
from streams.edge.executors.strays import Strays
from streams.edge.executors.threads import HandlerThreads

__all__ = ["ThreadExecutor"]


class ThreadExecutor:
    """Runs calls on threads; their ends are told on the event loop that it is made in."""

    def __init__(
        self, threads_max: int, result_bytes_max: int, on_end: OnEnd, strays: Strays
    ) -> None:
        self._result_bytes_max = result_bytes_max
        self._on_end = on_end
        self._strays = strays
        self._threads: HandlerThreads[tuple[Call, Outcome]] = HandlerThreads(
            asyncio.get_running_loop(), threads_max, self._ended
        )

    def start(self, call: Call) -> None:
        """Run it as soon as a thread is free, which is at once unless all are busy."""
        self._threads.submit(partial(_run, call, self._result_bytes_max))

    def interrupt(self, call: Call) -> None:
        """Nothing ends a thread but its function, which sees the token."""

    def abandon(self, call: Call) -> None:
        """Leave it alone, and let another thread take its place."""
        if call.begun:  # else it is passed over when its turn comes
            self._threads.lost()
            self._strays.add(call)

    def close(self) -> None:
        """Let the threads end with what they do now."""
        self._threads.stop()

    def _ended(self, ended: tuple[Call, Outcome]) -> None:
        call, outcome = ended
        if call in self._strays:
            self._threads.found()
            self._strays.ended(call)
        self._on_end(call, outcome)


def _run(call: Call, result_bytes_max: int) -> tuple[Call, Outcome]:
    """Run a call to its outcome, unless it was over before its turn came."""
    if call.verdict is not None or call.is_over:
        return call, INTERRUPTED
    call.begun = True
    return call, run_here(call, result_bytes_max)
