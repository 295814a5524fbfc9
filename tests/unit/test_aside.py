"""Work in a thread of its own: its result, its error, and an end that does not wait for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from streams.aside import aside, within


def test_what_the_work_returns_or_raises_reaches_the_caller() -> None:
    def fail() -> None:
        raise ValueError("no")

    assert asyncio.run(aside(threading.get_ident, name="w")) != threading.get_ident()
    with pytest.raises(ValueError, match="no"):
        asyncio.run(aside(fail, name="w"))


def test_a_loop_ends_while_the_work_of_a_cancelled_caller_goes_on() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()
        ended.set()

    async def main() -> None:
        task = asyncio.create_task(aside(work, name="w"))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())  # does not return when it waits for the work
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(30)


def test_a_thread_waits_for_the_work_no_longer_than_it_says() -> None:
    def fail() -> None:
        raise ValueError("no")

    assert within(30, threading.get_ident, name="w") != threading.get_ident()
    with pytest.raises(ValueError, match="no"):
        within(30, fail, name="w")

    go_on = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.01, go_on.wait, name="hangs")
    [left] = [each for each in threading.enumerate() if each.name == "hangs"]
    assert left.daemon, "a process that ends does not wait for it"
    go_on.set()
    left.join()
