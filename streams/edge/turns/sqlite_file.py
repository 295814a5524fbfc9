"""One SQLite file as a database of agent turns: for the processes of one host, no server needed.

Every transaction is the file's only writer from its first statement on (`BEGIN IMMEDIATE`), so that
what it reads is what it changes.  Waiting for another writer is bounded.  The write-ahead log is
synced at each commit: what was answered survives the host.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from streams.edge.turns.database import Row, Transaction, Value, Work
from streams.errors import TaskQueueUnavailable

__all__ = ["SqliteFile"]

_BUSY_MS = 5_000
"""A transaction here takes a millisecond: who holds the file for longer has stopped, not worked."""

_FILE_BYTES_MAX = 8 << 30
"""A hundred thousand of the largest turns, with room."""

_LOOK_AGAIN_S = 0.01

_Answer = TypeVar("_Answer")


class SqliteFile:
    """A file at `path`, opened when it is first used.

    Args: clock: the host's clock, ms since the epoch.  busy_ms: how long a transaction waits for
          that of another process.  bytes_max: how large the file may become.
    """

    backend = "sqlite"

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        busy_ms: int = _BUSY_MS,
        bytes_max: int = _FILE_BYTES_MAX,
    ) -> None:
        self._path = path.absolute()
        self.endpoint = f"sqlite:{self._path}"
        self._clock = clock
        self._busy_ms = busy_ms
        self._bytes_max = bytes_max
        self._turn = threading.Lock()
        self._open: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._now_ms = 0

    def run(self, work: Work[_Answer], /) -> _Answer:
        """Return what `work` returns, once it is in the file; see `Database.run`."""
        with self._turn:
            connection = self._connection()
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    answer = work(_SqliteTransaction(connection, self._look_at_clock))
                    connection.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._unavailable(error) from error
            return answer

    def make(self, name: str, statements: Sequence[str], /) -> None:
        """Make a table unless it is there; see `Database.make`."""

        def work(transaction: Transaction) -> None:
            known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
            if not transaction.execute(known, (name,)):
                for statement in statements:
                    transaction.execute(statement)

        self.run(work)

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        with self._turn:
            self._let_go()

    def _look_at_clock(self) -> None:
        self._now_ms = self._clock()

    def _let_go(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _connection(self) -> sqlite3.Connection:
        """The open file; one that was removed or replaced would swallow what is written to it."""
        if self._open is not None and self._inode_now() != self._inode:
            self._let_go()
            raise TaskQueueUnavailable(
                self.endpoint,
                "the file was removed or replaced while it was in use",
                retryable=True,
                remedy="stop every process that uses it before you move it",
            )
        if self._open is None:
            self._open = self._opened()
            self._inode = self._inode_now()
        return self._open

    def _inode_now(self) -> int | None:
        try:
            return self._path.stat().st_ino
        except OSError:
            return None

    def _opened(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TaskQueueUnavailable(
                self.endpoint,
                f"its folder cannot be made: {error.strerror}",
                retryable=False,
                remedy="name a folder that this user may write to (HARN_STATE_DIR)",
            ) from error
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(
                self._path,
                timeout=self._busy_ms / 1_000,
                isolation_level=None,
                check_same_thread=False,
            )
            self._prepare(connection)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise self._unavailable(error) from error
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.create_function("now_ms", 0, lambda: self._now_ms)
        mode = self._write_ahead(connection)
        if mode != "wal":
            raise TaskQueueUnavailable(
                self.endpoint,
                f"its file system has no shared memory for a write-ahead log (journal mode {mode})",
                retryable=False,
                remedy="name a folder on a local disk (HARN_STATE_DIR)",
            )
        connection.execute("PRAGMA synchronous = FULL")
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA max_page_count = {max(1, self._bytes_max // page_bytes)}")

    def _write_ahead(self, connection: sqlite3.Connection) -> str:
        """Switch the write-ahead log on; SQLite does not wait here for one who does the same."""
        until_s = time.monotonic() + self._busy_ms / 1_000
        while True:
            try:
                return connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= until_s:
                    raise
                time.sleep(_LOOK_AGAIN_S)

    def _unavailable(self, error: sqlite3.Error) -> TaskQueueUnavailable:
        """Say what a refusal of SQLite means to whoever runs this."""
        busy_s = self._busy_ms / 1_000
        reason, retryable, remedy = {
            sqlite3.SQLITE_BUSY: (
                f"another process has held the file for {busy_s:g} s",
                True,
                "look for a process that stands still with the file open",
            ),
            sqlite3.SQLITE_FULL: (
                f"the disk is full, or the file has reached {self._bytes_max} bytes",
                True,
                "make room on the disk, or start workers that take turns from it",
            ),
            sqlite3.SQLITE_NOTADB: (_CORRUPT, False, _MOVE_AWAY),
            sqlite3.SQLITE_CORRUPT: (_CORRUPT, False, _MOVE_AWAY),
            sqlite3.SQLITE_READONLY: (_UNWRITABLE, False, _PERMIT),
            sqlite3.SQLITE_CANTOPEN: (_UNWRITABLE, False, _PERMIT),
            sqlite3.SQLITE_PERM: (_UNWRITABLE, False, _PERMIT),
        }.get(
            _code(error),
            (f"SQLite refused: {error}", False, "see whether the disk and the file are in order"),
        )
        return TaskQueueUnavailable(self.endpoint, reason, retryable=retryable, remedy=remedy)


_CORRUPT = "the file is damaged, or is no SQLite database"
_MOVE_AWAY = "move it away and keep it: a new one is made, without the turns that were queued"
_UNWRITABLE = "this user may not write the file, or not its folder"
_PERMIT = f"let user {os.geteuid()} write both, or name another folder (HARN_STATE_DIR)"


def _code(error: sqlite3.Error) -> int:
    """The primary result code; extended codes carry it in their lowest byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


class _SqliteTransaction:
    """Statements of one transaction, in SQLite's words."""

    def __init__(self, connection: sqlite3.Connection, begin: Callable[[], None]) -> None:
        self._connection = connection
        self._begin = begin

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> list[Row]:
        """Run a statement and return its rows."""
        self._begin()
        return self._connection.execute(_spelled(sql), parameters).fetchall()

    def change(self, sql: str, parameters: Sequence[Value] = (), /) -> int:
        """Run a statement and return how many rows it touched."""
        self._begin()
        return self._connection.execute(_spelled(sql), parameters).rowcount

    def alone(self, name: str, /) -> None:
        """Nothing to wait for: there is one writer at a time."""


def _spelled(sql: str) -> str:
    return (
        sql.replace("{now}", "now_ms()")
        .replace("{serial}", "INTEGER PRIMARY KEY AUTOINCREMENT")
        .replace("{skip_locked}", "")
        .replace("{for_update}", "")
    )
