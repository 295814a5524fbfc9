"""PostgreSQL's queue, guard and store; apart, since psycopg is not everywhere."""

from __future__ import annotations

from streams.core.turn.claim import CLAIM_TTL_MS
from streams.edge.turns.advisory_guard import AdvisoryGuard
from streams.edge.turns.postgres_database import PostgresDatabase
from streams.edge.turns.postgres_link import PostgresLink
from streams.edge.turns.sql_turns import SqlTurns, opened_turns

__all__ = ["open_postgres_turns"]


def open_postgres_turns(
    address: str, *, consumer: str, claim_ttl_ms: int = CLAIM_TTL_MS
) -> SqlTurns:
    """Open, and make if need be, the tables of the database at `address` (`STATE_DB_URI`).

    Args:   consumer: who takes turns, as told in `claimed_by`.
    Raises: ConfigError, when it is no address.  TaskQueueUnavailable.
    """
    link = PostgresLink(address)
    return opened_turns(PostgresDatabase(link), AdvisoryGuard(link), consumer, claim_ttl_ms)
