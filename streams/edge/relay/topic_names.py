"""The names of a cluster's topics, asked for again and again beside the relaying of jobs.

On a cluster of many topics an answer takes tens of milliseconds, for which no job should wait: so a
thread asks, and the relay takes what was answered when it comes by.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection

__all__ = ["TopicNames"]


class TopicNames:
    """Asks in a thread of its own.

    Args:    ask: returns the names, or raises; called from that thread.
             every_s: how long it waits between an answer and the next question.
    """

    def __init__(self, ask: Callable[[], Collection[str]], every_s: float) -> None:
        self._ask = ask
        self._every_s = every_s
        self._answers: deque[Collection[str] | Exception] = deque(maxlen=1)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay-topics", daemon=True)

    def start(self) -> None:
        """Ask, now and from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Return once nothing is asked any more."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def take(self) -> Collection[str] | None:
        """Return the last answer, if nobody has taken it yet; raise what was raised instead."""
        if not self._answers:
            return None
        answer = self._answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._answers.append(tuple(self._ask()))
            except Exception as error:  # noqa: BLE001 - whoever takes the answer hears of it
                self._answers.append(error)
            self._stopping.wait(self._every_s)
