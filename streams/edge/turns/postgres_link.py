"""Connections to PostgreSQL: where it is, how it is reached, and what its refusals mean.

A password is in the address that is given, never in what is told of it.

Needs the extra `postgres` of this distribution (psycopg).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from streams.errors import ConfigError, TaskQueueUnavailable

__all__ = ["Connection", "PostgresLink"]

Connection = psycopg.Connection[tuple[Any, ...]]

# What the address may say otherwise.  A server or a path to it that is gone is noticed within half
# a minute, by either side: a lock that nobody holds any more must not last for hours.
_DEFAULTS: Mapping[str, str] = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "target_session_attrs": "read-write",
    "application_name": "harn-streams",
}

_SESSION = (
    "SET statement_timeout = '30s'",
    "SET lock_timeout = '10s'",
    "SET idle_in_transaction_session_timeout = '60s'",
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    "SET timezone = 'UTC'",
)
_ENDS_IDLE_SESSIONS = 140_000
"""From this version on a server may end sessions that are idle, and their locks with them."""

_SCHEMES = ("postgresql://", "postgres://")


class PostgresLink:
    """An address, `postgresql://user:password@host:port/database`.

    Raises: ConfigError, when it is none.
    """

    def __init__(self, address: str) -> None:
        if not address.startswith(_SCHEMES):
            raise ConfigError(_NO_ADDRESS)
        try:
            given = {key: str(value) for key, value in conninfo_to_dict(address).items()}
        except psycopg.ProgrammingError:
            # Its message repeats the address, password and all.
            raise ConfigError(_NO_ADDRESS) from None
        self._parameters = {**_DEFAULTS, **given}
        self._password = given.get("password")
        self.endpoint = _endpoint(given)

    def connect(self) -> Connection:
        """Return a new connection; each of its statements is a transaction unless one is begun.

        Raises: TaskQueueUnavailable.
        """
        try:
            connection = psycopg.connect("", autocommit=True, **self._parameters)  # pyright: ignore[reportArgumentType]
        except psycopg.Error as error:
            raise TaskQueueUnavailable(
                self.endpoint,
                self.said(error),
                retryable=True,
                remedy="see that STATE_DB_URI names a server that runs and lets this user in, or "
                "choose another transport with TASK_QUEUE_BACKEND",
            ) from None
        try:
            for statement in _SESSION:
                connection.execute(statement.encode())
            if connection.info.server_version >= _ENDS_IDLE_SESSIONS:
                connection.execute("SET idle_session_timeout = 0")
        except psycopg.Error as error:
            connection.close()
            raise self.unavailable(error) from None
        return connection

    def unavailable(self, error: psycopg.Error, *, note: str = "") -> TaskQueueUnavailable:
        """Say what a refusal means to whoever runs this."""
        retryable, remedy = _meaning(error)
        return TaskQueueUnavailable(
            self.endpoint, self.said(error) + note, retryable=retryable, remedy=remedy
        )

    def said(self, error: psycopg.Error) -> str:
        """Return the server's words in one line, without the password."""
        text = error.diag.message_primary or str(error)
        if self._password:
            text = text.replace(self._password, "***")
        return " ".join(text.split()) or type(error).__name__


_NO_ADDRESS = (
    "STATE_DB_URI names no PostgreSQL database, expected "
    "postgresql://user:password@host:port/database (its value is not shown: it may hold a password)"
)


def _meaning(error: psycopg.Error) -> tuple[bool, str | None]:
    """Return whether the same may succeed later, and what to do."""
    match error:
        case errors.InsufficientPrivilege() | errors.InvalidSchemaName():
            return False, "grant the user what docs/turns.md lists, or make the tables for it"
        case errors.UndefinedColumn() | errors.UndefinedTable() | errors.DatatypeMismatch():
            return False, "the tables are another program's: name another database in STATE_DB_URI"
        case errors.DiskFull() | errors.OutOfMemory():
            return True, "make room on the database's host"
        case errors.QueryCanceled() | errors.LockNotAvailable():
            return True, "look in pg_stat_activity for what holds its locks"
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return True, "see that the server runs and takes connections"
        case _:
            return False, None


def _endpoint(given: Mapping[str, str]) -> str:
    hosts = (given.get("host") or given.get("hostaddr") or "localhost").split(",")
    ports = (given.get("port") or "").split(",")
    if len(ports) < len(hosts):
        ports = ports[:1] * len(hosts)
    places = ",".join(
        f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False)
    )
    user = f"{given['user']}@" if "user" in given else ""
    return f"postgresql://{user}{places}/{given.get('dbname', given.get('user', ''))}"
