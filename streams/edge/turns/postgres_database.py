"""PostgreSQL as a database of agent turns: for any number of hosts.

Reconnects by itself.  What was lost with a connection before its commit was sent is done once
more; when the connection breaks during a commit, the error says that it may have taken effect.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TypeVar

import psycopg
from psycopg import errors

from streams.edge.turns.database import Row, Transaction, Value, Work
from streams.edge.turns.postgres_link import Connection, PostgresLink

__all__ = ["PostgresDatabase"]

_TRIES_MAX = 5
"""Of a transaction that met another one, or an end of its connection."""

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"

# Not `to_regclass`, which remembers within a transaction that there was none.
_KNOWN = "SELECT 1 FROM pg_tables WHERE tablename = ? AND schemaname = ANY (current_schemas(false))"

_Answer = TypeVar("_Answer")


class PostgresDatabase:
    """One connection to a server, made when it is first needed."""

    backend = "postgres"

    def __init__(self, link: PostgresLink) -> None:
        self._link = link
        self.endpoint = link.endpoint
        self._turn = threading.Lock()
        self._open: Connection | None = None

    def run(self, work: Work[_Answer], /) -> _Answer:
        """Return what `work` returns, once it is committed; see `Database.run`."""
        with self._turn:
            for tries_left in reversed(range(_TRIES_MAX)):
                fresh = self._open is None or self._open.closed
                connection = self._connection()
                try:
                    return self._transacted(connection, work)
                except errors.TransactionRollback as error:
                    # A deadlock, or a conflict: the server undid all of it.
                    if not tries_left:
                        raise self._link.unavailable(error) from None
                except _NothingDone as lost:
                    # An idle connection ends unnoticed; a new one that fails, too, is an outage.
                    if fresh or not tries_left:
                        raise self._link.unavailable(lost.error) from None
                except psycopg.Error as error:
                    raise self._link.unavailable(error) from None
        raise AssertionError("the last try returns or raises")

    def make(self, name: str, statements: Sequence[str], /) -> None:
        """Make a table unless it is there; see `Database.make`."""

        def work(transaction: Transaction) -> None:
            # Two who make a table at once fail on its name in spite of IF NOT EXISTS.  Who finds it
            # needs no right to make tables.
            for made_meanwhile in (False, True):
                if transaction.execute(_KNOWN, (name,)):
                    return
                if not made_meanwhile:
                    transaction.alone("harn-streams:tables")
            for statement in statements:
                transaction.change(statement)

        self.run(work)

    def close(self) -> None:
        """End the connection; a later call makes another."""
        with self._turn:
            self._let_go()

    def _let_go(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _connection(self) -> Connection:
        if self._open is None or self._open.closed:
            self._open = self._link.connect()
        return self._open

    def _transacted(self, connection: Connection, work: Work[_Answer]) -> _Answer:
        try:
            connection.execute(_BEGIN)
            answer = work(_PostgresTransaction(connection))
        except psycopg.Error as error:
            self._undo(connection)
            # A server that takes no writes any more: the address may lead to another one that does.
            read_only = isinstance(error, errors.ReadOnlySqlTransaction)
            if read_only:
                self._let_go()
            if connection.closed or read_only:
                raise _NothingDone(error) from None
            raise
        except BaseException:
            self._undo(connection)
            raise
        self._commit(connection)
        return answer

    def _commit(self, connection: Connection) -> None:
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            if connection.closed:
                self._let_go()
                note = "; it may have taken effect: the connection broke during the commit"
                raise self._link.unavailable(error, note=note) from None
            self._undo(connection)
            raise

    def _undo(self, connection: Connection) -> None:
        """Roll back, or end the connection, which does the same."""
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            with contextlib.suppress(psycopg.Error):
                connection.close()


class _NothingDone(Exception):  # noqa: N818 - a state, which `run` acts upon
    """The connection broke before a commit was sent."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


class _PostgresTransaction:
    """Statements of one transaction, in PostgreSQL's words."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> list[Row]:
        """Run a statement and return its rows."""
        return self._connection.execute(_spelled(sql), parameters).fetchall()

    def change(self, sql: str, parameters: Sequence[Value] = (), /) -> int:
        """Run a statement and return how many rows it touched."""
        return self._connection.execute(_spelled(sql), parameters).rowcount

    def alone(self, name: str, /) -> None:
        """Wait for whoever named the same."""
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))


_NOW = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint"


def _spelled(sql: str) -> bytes:
    text = (
        sql.replace("?", "%s")
        .replace("{now}", _NOW)
        .replace("{serial}", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
        .replace("{skip_locked}", "FOR UPDATE SKIP LOCKED")
        .replace("{for_update}", "FOR UPDATE")
    )
    return text.encode()
