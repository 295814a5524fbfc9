"""What enqueueing turns, and looking at them, needs of whatever carries them: Kafka or a database.

The values are those of `TurnStore`.  Every method raises TaskQueueUnavailable when the carrier
cannot be reached, and ValueError for what it cannot hold.

Source: seed queue-driven-agent-dispatch, "The model", "Fleet visibility"; SEMANTICS 8.2, 8.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns.turn_store import FleetWorker, Session, Status, TurnRecord

__all__ = ["TurnLedger"]


class TurnLedger(Protocol):
    """Records, sessions and workers, and the queue that turns are appended to."""

    @property
    def backend(self) -> str:
        """`kafka`, `postgres` or `sqlite`."""
        ...

    async def open_session(self, session: Session, /, *, tenant: str) -> None:
        """Make a session durable that is not there yet; one that is there waits for a turn."""
        ...

    async def create(self, record: TurnRecord, /, *, tenant: str) -> None:
        """Make a new record durable."""
        ...

    async def put(self, envelope: AgentTurnEnvelope, /) -> None:
        """Append a turn; on return it is durable.

        Raises: TurnRejected: it was not to wait, and its session is busy, as a database knows.
        """
        ...

    async def move(
        self, record: TurnRecord, /, *, to: Status, error: str | None = None
    ) -> TurnRecord | None:
        """Change the status of a record that nobody runs; None when it is not as given any more."""
        ...

    async def fail_session(self, session_id: str, /) -> None:
        """Say that what a session waited for never comes."""
        ...

    async def ask(
        self, session_id: str, /, *, pause: bool | None = None, kill: bool | None = None
    ) -> bool:
        """Ask for a session's pause or end, or take that back; false when there is none."""
        ...

    async def record(self, record_id: str, kind: str, /) -> TurnRecord | None:
        """Return a goal or task."""
        ...

    async def records(
        self,
        *,
        kind: str,
        session_id: str | None = None,
        status: Status | None = None,
        limit: int,
        offset: int = 0,
    ) -> Sequence[TurnRecord]:
        """Return goals or tasks, the last changed first."""
        ...

    async def session(self, session_id: str, /) -> Session | None:
        """Return a session, with what people want of it."""
        ...

    async def sessions(
        self, *, status: str | None = None, limit: int, offset: int = 0
    ) -> Sequence[Session]:
        """Return sessions, the last changed first."""
        ...

    async def workers(self) -> Sequence[FleetWorker]:
        """Return the workers heard of within 90 s, the last heard of first."""
        ...

    async def depth(self) -> int:
        """Count the turns that are enqueued and not done, those that run included."""
        ...
