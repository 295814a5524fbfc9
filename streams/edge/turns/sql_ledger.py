"""A database as a `TurnLedger`: its calls block, so each is made on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.turn_store import FleetWorker, Session, Status, TurnRecord

__all__ = ["SqlLedger"]

_STANDING = frozenset({"queued", "idle", "paused", "completed", "failed", "cancelled"})
"""Of a session while no turn of it runs."""


class SqlLedger:
    """Turns on SQLite or PostgreSQL; whoever opened them closes them."""

    def __init__(self, turns: SqlTurns) -> None:
        self._queue = turns.queue
        self._store = turns.store

    @property
    def backend(self) -> str:
        """`postgres` or `sqlite`."""
        return self._queue.backend

    async def open_session(self, session: Session, /, *, tenant: str) -> None:
        """Make a session durable; see `TurnLedger.open_session`."""
        del tenant  # it stands in the session's metadata

        def work() -> None:
            if not self._store.create_session(session):
                self._store.move_session(session.session_id, from_=_STANDING, to=session.status)

        await asyncio.to_thread(work)

    async def create(self, record: TurnRecord, /, *, tenant: str) -> None:
        """Make a new record durable; see `TurnLedger.create`."""
        del tenant
        if not await asyncio.to_thread(self._store.create, record):
            raise ValueError(f"there is a record {record.record_id!r} already")

    async def put(self, envelope: AgentTurnEnvelope, /) -> None:
        """Append a turn; see `TurnLedger.put`."""
        await asyncio.to_thread(self._queue.put, envelope.json_fields())

    async def move(
        self, record: TurnRecord, /, *, to: Status, error: str | None = None
    ) -> TurnRecord | None:
        """Change the status of a record that nobody runs; see `TurnLedger.move`."""

        def work() -> TurnRecord | None:
            key, from_ = record.record_id, {record.status}
            moved = self._store.move(key, from_=from_, to=to, error=error)
            return self._store.read(key) if moved else None

        return await asyncio.to_thread(work)

    async def fail_session(self, session_id: str, /) -> None:
        """Say that what a session waited for never comes; see `TurnLedger.fail_session`."""
        from_ = {"queued"}  # of another turn it runs, or has run
        await asyncio.to_thread(self._store.move_session, session_id, from_=from_, to="failed")

    async def ask(
        self, session_id: str, /, *, pause: bool | None = None, kill: bool | None = None
    ) -> bool:
        """Ask for a session's pause or end; see `TurnLedger.ask`."""
        return await asyncio.to_thread(self._store.request, session_id, pause=pause, kill=kill)

    async def record(self, record_id: str, kind: str, /) -> TurnRecord | None:
        """Return a goal or task; see `TurnLedger.record`."""
        found = await asyncio.to_thread(self._store.read, record_id)
        return found if found is not None and found.kind == kind else None

    async def records(
        self,
        *,
        kind: str,
        session_id: str | None = None,
        status: Status | None = None,
        limit: int,
        offset: int = 0,
    ) -> Sequence[TurnRecord]:
        """Return goals or tasks; see `TurnLedger.records`."""
        return await asyncio.to_thread(
            self._store.records,
            kind=kind,
            session_id=session_id,
            status=status,
            limit=limit,
            offset=offset,
        )

    async def session(self, session_id: str, /) -> Session | None:
        """Return a session; see `TurnLedger.session`."""
        return await asyncio.to_thread(self._store.read_session, session_id)

    async def sessions(
        self, *, status: str | None = None, limit: int, offset: int = 0
    ) -> Sequence[Session]:
        """Return sessions; see `TurnLedger.sessions`."""
        return await asyncio.to_thread(
            self._store.sessions, status=status, limit=limit, offset=offset
        )

    async def workers(self) -> Sequence[FleetWorker]:
        """Return the workers heard of of late; see `TurnLedger.workers`."""
        return await asyncio.to_thread(self._store.workers)

    async def depth(self) -> int:
        """Count the turns that are enqueued and not done; see `TurnLedger.depth`."""
        return await asyncio.to_thread(self._queue.get_queue_size)
