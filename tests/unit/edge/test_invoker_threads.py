from __future__ import annotations

import asyncio
import threading

from streams.edge.executors.threads import HandlerThreads


class Ends:
    """Collects what ended, and lets a test wait for a count."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._enough = asyncio.Event()
        self._count = 0

    def __call__(self, value: int) -> None:
        self.values.append(value)
        if len(self.values) >= self._count:
            self._enough.set()

    async def wait_for(self, count: int) -> list[int]:
        self._count = count
        self._enough.clear()
        if len(self.values) < count:
            await asyncio.wait_for(self._enough.wait(), 30)
        return self.values


async def test_jobs_run_on_threads_and_end_on_the_loop() -> None:
    ends = Ends()
    names: set[str] = set()

    def job() -> int:
        names.add(threading.current_thread().name)
        return 1

    threads = HandlerThreads(asyncio.get_running_loop(), 4, ends)
    for _ in range(100):
        threads.submit(job)
    assert await ends.wait_for(100) == [1] * 100
    assert names <= {f"handler-{n}" for n in range(1, 5)}
    threads.stop()


async def test_no_more_jobs_run_at_once_than_there_are_threads() -> None:
    ends = Ends()
    at_once = threading.Semaphore(3)
    all_in = threading.Barrier(3)
    overrun: list[int] = []

    def job() -> int:
        if not at_once.acquire(blocking=False):
            overrun.append(1)
            return 0
        all_in.wait(30)  # three do run at once, or this breaks
        at_once.release()
        return 1

    threads = HandlerThreads(asyncio.get_running_loop(), 3, ends)
    for _ in range(9):
        threads.submit(job)
    assert await ends.wait_for(9) == [1] * 9
    assert not overrun
    threads.stop()


async def test_a_free_thread_is_used_before_another_is_made() -> None:
    ends = Ends()
    names: list[str] = []

    def job() -> int:
        names.append(threading.current_thread().name)
        return 1

    threads = HandlerThreads(asyncio.get_running_loop(), 8, ends)
    for count in range(1, 6):
        threads.submit(job)
        await ends.wait_for(count)
    assert set(names) == {"handler-1"}
    threads.stop()


async def test_stopped_threads_finish_what_is_queued_and_end() -> None:
    ends = Ends()
    threads = HandlerThreads(asyncio.get_running_loop(), 1, ends)
    seen: list[threading.Thread] = []

    def job() -> int:
        seen.append(threading.current_thread())
        return 1

    threads.submit(job)
    threads.submit(job)
    threads.stop()
    await ends.wait_for(2)
    await asyncio.to_thread(seen[0].join, 30)
    assert not seen[0].is_alive()
