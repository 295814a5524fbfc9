"""Sessions, what was said in them, and workers, in tables; see `TurnStore`.

Source: SEMANTICS 8.9.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from streams.edge.turns.database import Database, Row, Transaction, Value
from streams.edge.turns.sql_words import checked_id, checked_page, json_text, text_of
from streams.edge.turns.turn_store import WORKER_TTL_MS, FleetWorker, Session, Utterance

__all__ = ["SqlSessions", "SqlWorkers", "said_in"]

CONTENT_CHARS_MAX = 500_000
_FORGOTTEN_MS = 24 * 3_600_000

_SESSIONS = (
    """CREATE TABLE agent_sessions (
        session_id TEXT PRIMARY KEY,
        domain TEXT NOT NULL,
        status TEXT NOT NULL,
        background INTEGER NOT NULL,
        needs_input INTEGER NOT NULL,
        metadata_json TEXT NOT NULL,
        pause_requested INTEGER NOT NULL,
        kill_requested INTEGER NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL
    )""",
    "CREATE INDEX agent_sessions_changed ON agent_sessions (updated_at, session_id)",
)
_SAID = (
    """CREATE TABLE agent_session_turns (
        session_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        role TEXT NOT NULL,
        content TEXT NOT NULL,
        at BIGINT NOT NULL,
        PRIMARY KEY (session_id, number)
    )""",
)
_WORKERS = (
    """CREATE TABLE dispatch_workers (
        worker_id TEXT PRIMARY KEY,
        host TEXT NOT NULL,
        capacity INTEGER NOT NULL,
        active_sessions TEXT NOT NULL,
        queue_backend TEXT NOT NULL,
        started_at BIGINT NOT NULL,
        last_heartbeat BIGINT NOT NULL
    )""",
)
_COLUMNS = """session_id, domain, status, background, needs_input, metadata_json, pause_requested,
    kill_requested, created_at, updated_at"""
_READ = f"SELECT {_COLUMNS} FROM agent_sessions WHERE session_id = ?"
_LIST = f"SELECT {_COLUMNS} FROM agent_sessions"
_NEWEST = "ORDER BY updated_at DESC, session_id DESC LIMIT ? OFFSET ?"
_CREATE = """INSERT INTO agent_sessions (session_id, domain, status, background, needs_input,
    metadata_json, pause_requested, kill_requested, created_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, 0, 0, {now}, {now}) ON CONFLICT (session_id) DO NOTHING"""
_SET = """UPDATE agent_sessions SET status = COALESCE(?, status),
    needs_input = COALESCE(?, needs_input), updated_at = {now} WHERE session_id = ?"""
_MOVE = """UPDATE agent_sessions SET status = ?, updated_at = {now}
    WHERE session_id = ? AND status IN """
_REQUEST = """UPDATE agent_sessions SET pause_requested = COALESCE(?, pause_requested),
    kill_requested = COALESCE(?, kill_requested), updated_at = {now} WHERE session_id = ?"""
_LOCK = "SELECT 1 FROM agent_sessions WHERE session_id = ? {for_update}"
_SAY = """INSERT INTO agent_session_turns (session_id, number, role, content, at)
    VALUES (?, ?, ?, ?, {now})"""
_LAST = "SELECT COALESCE(MAX(number), 0) FROM agent_session_turns WHERE session_id = ?"
_HEARD = """SELECT number, role, content, at FROM agent_session_turns
    WHERE session_id = ? AND number > ? ORDER BY number LIMIT ?"""
_BEAT = """INSERT INTO dispatch_workers (worker_id, host, capacity, active_sessions, queue_backend,
    started_at, last_heartbeat) VALUES (?, ?, ?, ?, ?, {now}, {now})
    ON CONFLICT (worker_id) DO UPDATE SET host = excluded.host, capacity = excluded.capacity,
    active_sessions = excluded.active_sessions, queue_backend = excluded.queue_backend,
    last_heartbeat = excluded.last_heartbeat"""
_FORGET = "DELETE FROM dispatch_workers WHERE last_heartbeat < {now} - ?"
_LEAVE = "DELETE FROM dispatch_workers WHERE worker_id = ?"
_ALIVE = """SELECT worker_id, host, capacity, active_sessions, queue_backend, started_at,
    last_heartbeat FROM dispatch_workers WHERE last_heartbeat >= {now} - ?
    ORDER BY last_heartbeat DESC, worker_id"""


def said_in(transaction: Transaction, session_id: str, role: str, content: str, /) -> int | None:
    """Append to what was said in a session; None when there is no such session."""
    if not transaction.execute(_LOCK, (session_id,)):
        return None
    ((last,),) = transaction.execute(_LAST, (session_id,))
    transaction.change(_SAY, (session_id, last + 1, text_of(role), text_of(content)))
    return last + 1


class SqlSessions:
    """The part of a store that knows sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.make("agent_sessions", _SESSIONS)
        database.make("agent_session_turns", _SAID)
        database.run(lambda transaction: transaction.execute(_READ, ("",)))

    def create_session(self, session: Session, /) -> bool:
        """Write a new session; see `TurnStore.create_session`."""
        values = (
            checked_id("session_id", session.session_id),
            text_of(session.domain),
            text_of(session.status),
            int(session.background),
            int(session.needs_input),
            json_text("metadata", session.metadata),
        )
        return self._changed(_CREATE, values)

    def read_session(self, session_id: str, /) -> Session | None:
        """Return a session; see `TurnStore.read_session`."""
        key = checked_id("session_id", session_id)
        rows = self._database.run(lambda transaction: transaction.execute(_READ, (key,)))
        return _session(rows[0]) if rows else None

    def set_session(
        self, session_id: str, /, *, status: str | None = None, needs_input: bool | None = None
    ) -> bool:
        """Change what is given of a session; see `TurnStore.set_session`."""
        key = checked_id("session_id", session_id)
        told = None if status is None else text_of(status)
        return self._changed(_SET, (told, _flag(needs_input), key))

    def move_session(self, session_id: str, /, *, from_: Collection[str], to: str) -> bool:
        """Change the status of a session that has one of `from_`; see `TurnStore.move_session`."""
        names = sorted(from_)
        sql = _MOVE + f"({', '.join('?' * len(names))})"
        return self._changed(sql, (to, checked_id("session_id", session_id), *names))

    def request(
        self, session_id: str, /, *, pause: bool | None = None, kill: bool | None = None
    ) -> bool:
        """Ask for a session's pause or end; see `TurnStore.request`."""
        key = checked_id("session_id", session_id)
        return self._changed(_REQUEST, (_flag(pause), _flag(kill), key))

    def sessions(
        self, *, status: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[Session]:
        """Return sessions, the last changed first; see `TurnStore.sessions`."""
        where, given = ("", ()) if status is None else ("WHERE status = ?", (text_of(status),))
        sql, page = f"{_LIST} {where} {_NEWEST}", (*given, *checked_page(limit, offset))
        rows = self._database.run(lambda transaction: transaction.execute(sql, page))
        return [_session(row) for row in rows]

    def say(self, session_id: str, role: str, content: str, /) -> int:
        """Append to what was said in a session; see `TurnStore.say`."""
        key = checked_id("session_id", session_id)
        if len(content) > CONTENT_CHARS_MAX:
            raise ValueError(f"content has {len(content)} characters, {CONTENT_CHARS_MAX} at most")
        number = self._database.run(lambda transaction: said_in(transaction, key, role, content))
        if number is None:
            raise ValueError(f"there is no session {session_id!r}: create it first")
        return number

    def said(self, session_id: str, /, *, after: int = 0, limit: int = 200) -> list[Utterance]:
        """Return what was said in a session; see `TurnStore.said`."""
        key = checked_id("session_id", session_id)
        limit, after = checked_page(limit, after)
        rows = self._database.run(
            lambda transaction: transaction.execute(_HEARD, (key, after, limit))
        )
        return [Utterance(*row) for row in rows]

    def _changed(self, sql: str, values: tuple[Value, ...]) -> bool:
        return self._database.run(lambda transaction: transaction.change(sql, values)) == 1


class SqlWorkers:
    """The part of a store that knows workers."""

    def __init__(self, database: Database, *, worker_ttl_ms: int = WORKER_TTL_MS) -> None:
        self._database = database
        self._worker_ttl_ms = worker_ttl_ms
        database.make("dispatch_workers", _WORKERS)
        database.run(lambda transaction: transaction.execute(_ALIVE, (0,)))

    def beat(self, worker: FleetWorker, /) -> None:
        """Write a heartbeat, and forget workers unheard of for a day; see `TurnStore.beat`."""
        values = (
            checked_id("worker_id", worker.worker_id),
            text_of(worker.host),
            worker.capacity,
            json.dumps(list(worker.active_sessions)),
            text_of(worker.queue_backend),
        )

        def work(transaction: Transaction) -> None:
            transaction.change(_BEAT, values)
            transaction.change(_FORGET, (max(_FORGOTTEN_MS, self._worker_ttl_ms),))

        self._database.run(work)

    def leave(self, worker_id: str, /) -> None:
        """Forget a worker; see `TurnStore.leave`."""
        self._database.run(lambda transaction: transaction.change(_LEAVE, (worker_id,)))

    def workers(self) -> list[FleetWorker]:
        """Return the workers heard of of late; see `TurnStore.workers`."""
        ttl = (self._worker_ttl_ms,)
        rows = self._database.run(lambda transaction: transaction.execute(_ALIVE, ttl))
        return [_worker(row) for row in rows]


def _session(row: Row) -> Session:
    return Session(
        session_id=row[0],
        domain=row[1],
        status=row[2],
        background=bool(row[3]),
        needs_input=bool(row[4]),
        metadata=json.loads(row[5]),
        pause_requested=bool(row[6]),
        kill_requested=bool(row[7]),
        created_at_ms=row[8],
        updated_at_ms=row[9],
    )


def _worker(row: Row) -> FleetWorker:
    return FleetWorker(
        worker_id=row[0],
        host=row[1],
        capacity=row[2],
        active_sessions=tuple(json.loads(row[3])),
        queue_backend=row[4],
        started_at_ms=row[5],
        last_heartbeat_ms=row[6],
    )


def _flag(value: bool | None) -> int | None:  # noqa: FBT001 - what a column holds
    return None if value is None else int(value)
