"""One turn of a session at a time, whoever else has been handed the same one.

A carrier delivers at least once, so two workers may hold turns of one session: the guard lets one
of them pass and has the other one wait.  It is held from the deadline check to the write-back.  Who
waits looks again often, instead of blocking where nothing could end it.

Source: seed queue-driven-agent-dispatch, "Per-session mutual exclusion"; SEMANTICS 8.7.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from streams.errors import HarnError

__all__ = ["GuardClosed", "Hold", "LocalLocks", "SessionGuard", "name_of", "wait_for"]

_LOOK_EVERY_S = 0.05
"""A turn takes longer, and a look costs one small query."""


class GuardClosed(HarnError):  # noqa: N818 - a state, which ends a wait
    """The guard was closed, or the time to wait had passed, before the session was free."""


class Hold(Protocol):
    """A session that is held."""

    def lost(self) -> bool:
        """Whether somebody else may hold the session by now; to be asked during long turns."""
        ...


class SessionGuard(Protocol):
    """Mutual exclusion by session, across threads, processes and, where told, hosts."""

    def hold(
        self, session_id: str, /, *, within_s: float | None = None
    ) -> AbstractContextManager[Hold]:
        """Wait until the session is free, at most `within_s`, and hold it for the block.

        Raises: GuardClosed.  TaskQueueUnavailable.
        """
        ...

    def close(self) -> None:
        """End every wait; sessions that are held stay so until their blocks end."""
        ...


class LocalLocks:
    """A lock for each name that threads of this process hold or wait for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: set[str] = set()
        self._closed = False

    @contextmanager
    def hold(self, name: str, deadline_s: float | None, /) -> Iterator[None]:
        """Hold a name for the block; `deadline_s` is of `time.monotonic`.

        Raises: GuardClosed.
        """
        with self._changed:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            free = self._changed.wait_for(
                lambda: self._closed or name not in self._held, timeout=left_s
            )
            if self._closed or not free:
                raise _not_free(name, closed=self._closed)
            self._held.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._held.discard(name)
                self._changed.notify_all()

    def close(self) -> None:
        """End every wait, also those of `wait_for`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def pause(self, seconds: float, /) -> bool:
        """Wait for that long, or until closed; say whether it was closed."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, timeout=seconds)


def name_of(session_id: str, /) -> str:
    """Return the name of a session's lock; with PostgreSQL `hashtextextended(name, 0)` is its key.

    Raises: ValueError, when the id is no text that can be a name.
    """
    try:
        session_id.encode()
    except UnicodeEncodeError:
        session_id = ""
    if not session_id or "\0" in session_id:
        raise ValueError("a session is locked by its id, expected a text that is not empty")
    return f"agent-session:{session_id}"


def wait_for(
    taken: Callable[[], bool], name: str, deadline_s: float | None, locks: LocalLocks, /
) -> None:
    """Return once `taken` says so.

    Raises: GuardClosed, when `locks` are closed or the deadline passes first.
    """
    while not taken():
        left_s = _LOOK_EVERY_S if deadline_s is None else deadline_s - time.monotonic()
        if left_s <= 0:
            raise _not_free(name, closed=False)
        if locks.pause(min(left_s, _LOOK_EVERY_S)):
            raise _not_free(name, closed=True)


def _not_free(name: str, *, closed: bool) -> GuardClosed:
    why = "the guard was closed" if closed else "the time to wait for it has passed"
    return GuardClosed(f"session {name!r} is held by another turn, and {why}")
