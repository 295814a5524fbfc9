"""Blocking work in a thread of its own, which a process that ends does not wait for.

Threads of `asyncio.to_thread` are joined before the process exits: one that waits for an answer
which is not coming any more would hold it up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["aside", "within"]

_Result = TypeVar("_Result")


async def aside(work: Callable[[], _Result], *, name: str) -> _Result:
    """Return what `work` returns, or raise what it raises; it runs in a thread of that name.

    When the caller is cancelled the thread goes on, and ends with the process at the latest: what
    it does must be of the kind that may be cut off and done again.
    """
    return await asyncio.wrap_future(_begun(work, name))


def within(seconds: float, work: Callable[[], _Result], *, name: str) -> _Result:
    """Return what `work` returns, or raise what it raises; wait for it no longer than so.

    It is for threads, and for calls of C clients that have no limit of their own, or do not keep
    it.  A thread that is not waited for any more is left as by `aside`.

    Raises: TimeoutError when it goes on.
    """
    return _begun(work, name).result(seconds)


def _begun(work: Callable[[], _Result], name: str) -> Future[_Result]:
    """Begin work in a thread of that name."""
    done: Future[_Result] = Future()
    done.set_running_or_notify_cancel()  # from here on nobody can take it back

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
