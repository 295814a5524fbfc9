"""Threads for handlers that are plain functions.

Their ends cross to the event loop in batches: a wake-up of the loop for each costs more than a
short handler.  The threads are daemons, unlike those of `concurrent.futures`: a handler that never
returns must not keep a process from ending after its drain time.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

__all__ = ["THREADS_MAX", "HandlerThreads"]

THREADS_MAX = 1_000
"""More threads than this cost more than they bring, whatever the setting allows."""

T = TypeVar("T")
Job = Callable[[], T]


class HandlerThreads(Generic[T]):
    """Runs jobs in the order in which they come, on at most `threads_max` threads.

    A thread that is lost to its job is replaced, and ends when the job does.

    Args:    loop: where `on_ended` is called with what a job returned.  A job must not raise.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, threads_max: int, on_ended: Callable[[T], None]
    ) -> None:
        self._loop = loop
        self._threads_max = min(threads_max, THREADS_MAX)
        self._on_ended = on_ended
        self._jobs: SimpleQueue[Job[T] | None] = SimpleQueue()
        self._ended: deque[T] = deque()
        self._hand_over_planned = False
        self._threads = 0
        self._named = 0
        self._unfinished = 0  # submitted and not handed over, on threads that are not lost
        self._stopped = False

    @property
    def threads(self) -> int:
        """Return how many threads there are for jobs that come."""
        return self._threads

    def submit(self, job: Job[T]) -> None:
        """Run `job` as soon as a thread is free; a thread is made when all may be busy."""
        self._unfinished += 1
        self._jobs.put(job)
        self._make_thread()

    def lost(self) -> None:
        """Count a thread no longer: its job does not end."""
        self._threads -= 1
        self._unfinished -= 1
        self._make_thread()

    def found(self) -> None:
        """Count a lost thread again, for its job is handed over now: one thread too many ends."""
        self._unfinished += 1
        self._jobs.put(None)

    def stop(self) -> None:
        """End each thread after its present job; queued jobs run before."""
        self._stopped = True
        for _ in range(self._threads):
            self._jobs.put(None)

    def _make_thread(self) -> None:
        if self._stopped or self._threads >= min(self._unfinished, self._threads_max):
            return
        self._threads += 1
        self._named += 1
        threading.Thread(target=self._run, name=f"handler-{self._named}", daemon=True).start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._ended.append(job())
            # Two threads may both plan one: the second then finds nothing, which is harmless.
            if not self._hand_over_planned:
                self._hand_over_planned = True
                try:
                    self._loop.call_soon_threadsafe(self._hand_over)
                except RuntimeError:
                    return  # the loop is closed: nobody waits for this handler any more

    def _hand_over(self) -> None:
        # The flag falls first: what ends after the last pop plans another hand-over.
        self._hand_over_planned = False
        while self._ended:
            self._unfinished -= 1
            self._on_ended(self._ended.popleft())
