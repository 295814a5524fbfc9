"""Opening the database that the settings name for agent turns; never another one in its place."""

from __future__ import annotations

import importlib

from streams.edge.turns.sql_turns import SqlTurns, open_sqlite_turns
from streams.errors import TaskQueueUnavailable
from streams.settings import Settings

__all__ = ["open_turns"]


def open_turns(settings: Settings, *, consumer: str, must_exist: bool = False) -> SqlTurns:
    """Open SQLite or PostgreSQL, whichever carries turns; Kafka is opened elsewhere.

    Args:   consumer: who takes turns, as told in `claimed_by`.
            must_exist: refuse a file that is not there.  A database server is asked for by its
            address, and tables are made in it.
    Raises: TaskQueueUnavailable.  ConfigError, when STATE_DB_URI names no database.
    """
    claim_ttl_ms = settings.claim_ttl_s * 1_000
    backend = settings.turn_queue_backend
    if backend == "sqlite":
        return open_sqlite_turns(
            settings.state_dir,
            consumer=consumer,
            claim_ttl_ms=claim_ttl_ms,
            must_exist=must_exist,
        )
    if backend != "postgres" or settings.state_db_uri is None:
        raise ValueError(f"turns are carried by {backend}, expected sqlite or postgres")
    try:
        postgres = importlib.import_module("streams.edge.turns.postgres_turns")
    except ImportError as error:
        if (error.name or "psycopg").startswith("streams"):
            raise
        raise TaskQueueUnavailable(
            "postgres",
            f"its client psycopg cannot be loaded: {error}",
            retryable=False,
            remedy="pip install 'harn-streams[postgres]'",
        ) from error
    return postgres.open_postgres_turns(
        settings.state_db_uri, consumer=consumer, claim_ttl_ms=claim_ttl_ms
    )
