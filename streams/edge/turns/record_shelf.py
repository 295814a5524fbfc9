"""The newest records of agent turns by their keys, on this host's disk: all of them, and findable.

A temporary SQLite database, which is gone when its process is: nothing of it has to be right after
a crash, it is read anew from the topics.  What fits into its cache is never written to the disk.
Of what is kept nothing but that cache is in memory, however many records there are.

A record counts by its place: what stands at a higher offset is newer.  A key has one partition; of
another one it has no record.

Invariants: at most `bytes_max` bytes are kept; what does not fit is refused, never dropped.

Source: DESIGN law 9; SEMANTICS 8.9.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from streams.core.turn.parting import Due
from streams.errors import TaskQueueUnavailable

__all__ = ["BYTES_MAX", "Gone", "RecordShelf", "Shelved"]

BYTES_MAX = 8 * 2**30
"""Of the disk, of one shelf."""

_CACHE_BYTES = 16 * 2**20

_MAKE = (
    # The journal in memory lets a batch that does not fit be taken back.
    "PRAGMA journal_mode = MEMORY",
    "PRAGMA synchronous = OFF",
    "PRAGMA locking_mode = EXCLUSIVE",
    """CREATE TABLE kept (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        session TEXT NOT NULL,
        status TEXT NOT NULL,
        updated INTEGER NOT NULL,
        partition INTEGER NOT NULL,
        at INTEGER NOT NULL,
        pass INTEGER NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (key, kind)
    )""",
    "CREATE INDEX kept_changed ON kept (kind, updated, key)",
    "CREATE INDEX kept_status ON kept (kind, status, updated, key)",
    "CREATE INDEX kept_session ON kept (session, kind, updated, key)",
)
_PUT = """INSERT INTO kept (kind, key, session, status, updated, partition, at, value, pass)
    VALUES {rows} ON CONFLICT (key, kind) DO UPDATE SET session = excluded.session,
    status = excluded.status,
    updated = excluded.updated, at = excluded.at, pass = excluded.pass, value = excluded.value
    WHERE excluded.partition = kept.partition AND excluded.at >= kept.at"""
_REMOVE = """DELETE FROM kept WHERE rowid IN (
    SELECT kept.rowid FROM kept JOIN (VALUES {rows}) AS gone
    ON kept.key = gone.column1 AND kept.partition = gone.column2 AND kept.at <= gone.column3)"""
# So many rows go into a statement: between two statements a thread waits for the others' turn, and
# while one works they go on.  Few sizes, so that statements are prepared once.
_AT_ONCE = (256, 32, 4, 1)
_GET = "SELECT value FROM kept WHERE key = ? AND kind = ?"
# Rows are passed over in an index, without their values.
_NEWEST = """SELECT value FROM kept WHERE rowid IN (SELECT rowid FROM kept WHERE {where}
    ORDER BY updated DESC, key DESC LIMIT ? OFFSET ?) ORDER BY updated DESC, key DESC"""
# Ends of goals and tasks; then sessions without any, and wishes, when nothing of them is younger.
_ENDED = """SELECT kind, key, session, updated FROM kept WHERE kind IN ('agent_goal', 'agent_job')
    AND status IN ('completed', 'failed', 'cancelled') AND updated <= ? LIMIT ? OFFSET ?"""
_EMPTY = """SELECT kind, key, session, updated FROM kept
    WHERE kind IN ('agent_session', 'agent_session_desired') AND updated <= ?
    AND NOT EXISTS (SELECT 1 FROM kept AS other WHERE other.session = kept.session
        AND (other.kind IN ('agent_goal', 'agent_job') OR other.updated > ?)) LIMIT ? OFFSET ?"""


class Shelved(NamedTuple):
    """The newest record of a key, as far as it was read; `offset` is its place in `partition`.

    `value` may be left empty where nobody will ask for it.
    """

    kind: str
    key: str
    session_id: str
    status: str
    updated_at_ms: int
    partition: int
    offset: int
    value: bytes


class Gone(NamedTuple):
    """The word that a key has no record any more."""

    key: str
    partition: int
    offset: int


class RecordShelf:
    """Records by kind and key; any thread may ask, one at a time.

    Every method raises TaskQueueUnavailable when the disk is full, `bytes_max` is reached, or no
    temporary file can be had: the call has changed nothing then.
    """

    def __init__(self, *, bytes_max: int = BYTES_MAX, cache_bytes: int = _CACHE_BYTES) -> None:
        self._lock = threading.Lock()
        self._bytes_max = bytes_max
        with _Told(bytes_max):
            self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
            for statement in _MAKE:
                self._database.execute(statement)
            self._database.execute(f"PRAGMA cache_size = {-max(1, cache_bytes // 1024)}")
            ((page_bytes,),) = self._database.execute("PRAGMA page_size").fetchall()
            self._database.execute(f"PRAGMA max_page_count = {max(1, bytes_max // page_bytes)}")

    def close(self) -> None:
        """Let go of everything; idempotent."""
        with self._lock:
            self._database.close()

    def apply(self, changes: Iterable[Shelved | Gone], pass_number: int = 0) -> None:
        """Take records in the order of their topic.

        Args: pass_number: counts the readings of the topic from its beginning, see `sweep`.
        """
        last = {(change.key, change.partition): change for change in changes}
        gone = [change for change in last.values() if isinstance(change, Gone)]
        put = [(*change, pass_number) for change in last.values() if isinstance(change, Shelved)]
        with self._lock, _Told(self._bytes_max):
            if gone:  # apart: it makes room
                self._batch(_REMOVE, gone)
            if put:
                self._batch(_PUT, put)

    def sweep(self, kinds: Collection[str], pass_number: int) -> None:
        """Remove records of these kinds that an earlier reading met and this one did not.

        A log forgets the word that a key is gone: who read it before must not keep it.
        """
        sql = f"DELETE FROM kept WHERE kind IN ({_marks(len(kinds))}) AND pass < ?"  # noqa: S608 - marks alone
        with self._lock, _Told(self._bytes_max):
            self._database.execute(sql, (*kinds, pass_number))

    def get(self, kind: str, key: str, /) -> bytes | None:
        """Return the newest record of a key."""
        with self._lock, _Told(self._bytes_max):
            found = self._database.execute(_GET, (key, kind)).fetchone()
        return None if found is None else found[0]

    def newest(
        self,
        kind: str,
        /,
        *,
        session_id: str | None = None,
        status: str | None = None,
        limit: int,
        offset: int = 0,
    ) -> list[bytes]:
        """Return records, the last changed first."""
        wanted = {"kind": kind, "session": session_id, "status": status}
        given = {column: value for column, value in wanted.items() if value is not None}
        sql = _NEWEST.format(where=" AND ".join(f"{column} = ?" for column in given))
        with self._lock, _Told(self._bytes_max):
            return [row[0] for row in self._database.execute(sql, (*given.values(), limit, offset))]

    def find(self, keys: Collection[str], /) -> list[tuple[str, str, str, bytes]]:
        """Return kind, key, status and value of the records of these keys."""
        sql = f"SELECT kind, key, status, value FROM kept WHERE key IN ({_marks(len(keys))})"  # noqa: S608 - marks alone
        with self._lock, _Told(self._bytes_max):
            return self._database.execute(sql, tuple(keys)).fetchall()

    def ended(self, before_ms: int, /, *, limit: int, offset: int = 0) -> list[Due]:
        """Return goals and tasks that have ended and were not changed after `before_ms`."""
        with self._lock, _Told(self._bytes_max):
            return [Due(*row) for row in self._database.execute(_ENDED, (before_ms, limit, offset))]

    def empty(self, before_ms: int, /, *, limit: int, offset: int = 0) -> list[Due]:
        """Return sessions and wishes of sessions that have no goal or task, unchanged as long."""
        values = (before_ms, before_ms, limit, offset)
        with self._lock, _Told(self._bytes_max):
            return [Due(*row) for row in self._database.execute(_EMPTY, values)]

    def _batch(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Do all or nothing."""
        self._database.execute("BEGIN")
        try:
            for size, begin in _pieces(len(rows)):
                piece = rows[begin : begin + size]
                marks = f"({_marks(len(piece[0]))})"
                values = [value for row in piece for value in row]
                self._database.execute(sql.format(rows=", ".join([marks] * size)), values)
            self._database.execute("COMMIT")
        except sqlite3.Error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    """Cut so many rows into pieces: size and begin of each."""
    begin = 0
    for size in _AT_ONCE:
        while count - begin >= size:
            yield size, begin
            begin += size


class _Told(AbstractContextManager[None]):
    """Says what is wrong with the disk as who asks for turns is told."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise TaskQueueUnavailable(
                "in temporary files (of TMPDIR, else /var/tmp or /tmp)",
                f"{error} (at most {self._bytes_max} bytes)",
                retryable=True,
                remedy="make room there, or name a folder with more by TMPDIR; a shorter "
                "AGENT_JOB_RETENTION keeps less",
            ) from error
