"""The guard of a fleet: an advisory lock of PostgreSQL for each session that is held.

The lock belongs to a connection: the server frees it when the connection ends, as it does when the
holder crashes.  All that a process holds is held by one connection; when that breaks, all is lost
at once, and each hold says so.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from streams.edge.turns.postgres_link import Connection, PostgresLink
from streams.edge.turns.session_guard import LocalLocks, name_of, wait_for
from streams.observe import logs

__all__ = ["AdvisoryGuard"]

_LOG = logs.logger(__name__)

_TAKE = b"SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_GIVE = b"SELECT pg_advisory_unlock(hashtextextended(%s, 0))"


class AdvisoryGuard:
    """Locks of one connection, which is made when it is first needed and again after it broke."""

    def __init__(self, link: PostgresLink) -> None:
        self._link = link
        self._locks = LocalLocks()
        self._turn = threading.Lock()
        self._open: Connection | None = None
        self._holds = 0
        self._closed = False

    @contextmanager
    def hold(self, session_id: str, /, *, within_s: float | None = None) -> Iterator[AdvisoryHold]:
        """Hold a session in the whole fleet; see `SessionGuard.hold`."""
        name = name_of(session_id)
        deadline_s = None if within_s is None else time.monotonic() + within_s
        with self._locks.hold(session_id, deadline_s):
            found: list[Connection] = []

            def take() -> bool:
                connection = self._taken(name)
                if connection is not None:
                    found.append(connection)
                return connection is not None

            wait_for(take, session_id, deadline_s, self._locks)
            hold = AdvisoryHold(found[0], self._turn)
            try:
                yield hold
            finally:
                if not self._given(found[0], name):
                    # Its turns may have run twice; what is written back by claim is not.
                    _LOG.warning("session_guard_lost", extra={"session": session_id})

    def close(self) -> None:
        """End every wait; the connection ends with the last hold."""
        self._locks.close()
        with self._turn:
            self._closed = True
            self._end_if_unused()

    def _taken(self, name: str) -> Connection | None:
        with self._turn:
            if self._open is None or self._open.closed:
                self._open = self._link.connect()
                self._holds = 0
            connection = self._open
            try:
                row = connection.execute(_TAKE, (name,)).fetchone()
            except psycopg.Error as error:
                # Whether the lock was taken is not known: without the connection it is not.
                _end(connection)
                raise self._link.unavailable(error) from None
            if row is None or not row[0]:
                return None
            self._holds += 1
            return connection

    def _given(self, connection: Connection, name: str) -> bool:
        """Free the lock, and say whether it had been held all the time."""
        with self._turn:
            try:
                row = connection.execute(_GIVE, (name,)).fetchone()
            except psycopg.Error:
                _end(connection)
                return False
            if connection is self._open:
                self._holds -= 1
                self._end_if_unused()
            return row is not None and bool(row[0])

    def _end_if_unused(self) -> None:
        if self._closed and self._holds <= 0 and self._open is not None:
            _end(self._open)
            self._open = None


class AdvisoryHold:
    """A session that is held as long as a connection lasts."""

    def __init__(self, connection: Connection, turn: threading.Lock) -> None:
        self._connection = connection
        self._turn = turn

    def lost(self) -> bool:
        """Whether the connection is gone, and the lock with it; asks the server."""
        with self._turn:
            try:
                self._connection.execute(b"SELECT 1")
            except psycopg.Error:
                _end(self._connection)
                return True
            return False


def _end(connection: Connection) -> None:
    with contextlib.suppress(psycopg.Error):
        connection.close()
