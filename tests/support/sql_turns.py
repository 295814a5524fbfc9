"""Turns on either database, for tests that must hold on both; time passes when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from streams.edge.turns.database import Database, Transaction
from streams.edge.turns.postgres_turns import open_postgres_turns
from streams.edge.turns.sql_turns import SqlTurns, open_sqlite_turns
from tests.support.postgres import Postgres

# Every moment that a rule looks at.
_MOMENTS = (
    ("agent_dispatch_queue", "visible_at"),
    ("agent_turn_records", "renewed_at"),
    ("agent_turn_records", "claimed_at"),
    ("agent_turn_records", "updated_at"),
    ("agent_sessions", "updated_at"),
    ("dispatch_workers", "last_heartbeat"),
)


@dataclass
class Place:
    """A database that is empty at first; every `open` is as another process."""

    make: Callable[[str], SqlTurns]
    opened: ExitStack = field(default_factory=ExitStack)

    def open(self, consumer: str = "w1") -> SqlTurns:
        turns = self.make(consumer)
        self.opened.callback(turns.close)
        return turns

    def pass_time(self, ms: int) -> None:
        """Make everything written so far `ms` older."""

        def work(transaction: Transaction) -> None:
            for table, column in _MOMENTS:
                # What is visible at once has no moment.
                sql = f"UPDATE {table} SET {column} = {column} - ? WHERE {column} > 0"
                transaction.change(sql, (ms,))

        self.open("time").database.run(work)


@contextmanager
def sqlite_place(folder: Path) -> Iterator[Place]:
    place = Place(lambda consumer: open_sqlite_turns(folder, consumer=consumer))
    with place.opened:
        yield place


@contextmanager
def postgres_place(postgres: Postgres) -> Iterator[Place]:
    with postgres.database() as address:
        place = Place(lambda consumer: open_postgres_turns(address, consumer=consumer))
        with place.opened:
            yield place


def now_ms(database: Database) -> int:
    """Return the time on the database's clock."""
    ((now,),) = database.run(lambda transaction: transaction.execute("SELECT {now}"))
    return now
