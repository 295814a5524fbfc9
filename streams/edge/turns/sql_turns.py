"""A database's queue, guard and store together: all that agent turns need of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streams.core.turn.claim import CLAIM_TTL_MS
from streams.edge.turns.database import Database, Transaction
from streams.edge.turns.file_guard import FileGuard
from streams.edge.turns.session_guard import SessionGuard
from streams.edge.turns.sql_policies import SqlPolicies
from streams.edge.turns.sql_queue import SqlTaskQueue
from streams.edge.turns.sql_records import SqlRecords
from streams.edge.turns.sql_sessions import SqlSessions, SqlWorkers
from streams.edge.turns.sqlite_file import SqliteFile
from streams.errors import TaskQueueUnavailable

__all__ = [
    "FORGOTTEN_AT_ONCE_MAX",
    "QUEUE_FILE",
    "SqlTurnStore",
    "SqlTurns",
    "open_sqlite_turns",
    "opened_turns",
]

QUEUE_FILE = "agent_dispatch_queue.db"
_LOCKS = "agent_dispatch_locks"


FORGOTTEN_AT_ONCE_MAX = 1_000

_OLD_RECORDS = """DELETE FROM agent_turn_records WHERE record_id IN (
    SELECT record_id FROM agent_turn_records
    WHERE status IN ('completed', 'failed', 'cancelled') AND updated_at < {now} - ?
    ORDER BY updated_at LIMIT ?)"""
_OLD_SESSIONS = """SELECT session_id FROM agent_sessions WHERE updated_at < {now} - ?
    AND NOT EXISTS (SELECT 1 FROM agent_turn_records
        WHERE agent_turn_records.session_id = agent_sessions.session_id)
    ORDER BY updated_at LIMIT ? {for_update}"""


class SqlTurnStore(SqlRecords, SqlSessions, SqlWorkers):
    """A `TurnStore` in one database."""

    def __init__(self, database: Database, *, claim_ttl_ms: int = CLAIM_TTL_MS) -> None:
        SqlRecords.__init__(self, database, claim_ttl_ms=claim_ttl_ms)
        SqlSessions.__init__(self, database)
        SqlWorkers.__init__(self, database)

    def forget(self, unchanged_ms: int, /) -> int:
        """Delete records that have ended, and sessions without records; see `TurnStore.forget`."""
        if unchanged_ms < 0:
            raise ValueError(f"unchanged_ms is {unchanged_ms}, expected 0 or more")
        page = (unchanged_ms, FORGOTTEN_AT_ONCE_MAX)

        def work(transaction: Transaction) -> int:
            records = transaction.change(_OLD_RECORDS, page)
            sessions = transaction.execute(_OLD_SESSIONS, page)
            for session in sessions:
                for table in ("agent_session_turns", "agent_sessions"):
                    transaction.change(f"DELETE FROM {table} WHERE session_id = ?", session)
            return records + len(sessions)

        return self._database.run(work)


@dataclass(frozen=True, slots=True)
class SqlTurns:
    """What a process that enqueues or runs turns has open."""

    queue: SqlTaskQueue
    guard: SessionGuard
    store: SqlTurnStore
    database: Database

    def close(self) -> None:
        """End waits and connections."""
        self.guard.close()
        self.database.close()


def open_sqlite_turns(
    state_dir: Path,
    *,
    consumer: str,
    claim_ttl_ms: int = CLAIM_TTL_MS,
    must_exist: bool = False,
) -> SqlTurns:
    """Open, and make if need be, the file of this host in `state_dir`.

    Args:   consumer: who takes turns, as told in `claimed_by`.
            must_exist: refuse a file that is not there: who only reads makes none.
    Raises: TaskQueueUnavailable.
    """
    database = SqliteFile(state_dir / QUEUE_FILE)
    if must_exist and not (state_dir / QUEUE_FILE).is_file():
        raise TaskQueueUnavailable(
            database.endpoint,
            "there is no such file, expected the one that workers and the API use",
            retryable=False,
            remedy="name their folder (HARN_STATE_DIR or --state-dir); they make the file when "
            "they first start",
        )
    return opened_turns(database, FileGuard(state_dir / _LOCKS), consumer, claim_ttl_ms)


def opened_turns(
    database: Database, guard: SessionGuard, consumer: str, claim_ttl_ms: int
) -> SqlTurns:
    """Return all that turns need of a database, whose connection ends when it cannot be had."""
    try:
        store = SqlTurnStore(database, claim_ttl_ms=claim_ttl_ms)
        return SqlTurns(
            queue=SqlTaskQueue(database, consumer=consumer, policies=SqlPolicies(store)),
            guard=guard,
            store=store,
            database=database,
        )
    except BaseException:
        database.close()
        raise
