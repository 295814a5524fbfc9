"""Turns in a database's queue, and workers that are delivered them."""

from __future__ import annotations

from typing import Any

from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns.delivery import Deliveries, Ended, Lease, Outcome
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.turn_store import (
    Claimant,
    Progress,
    Session,
    Status,
    TurnRecord,
)


def envelope(session: str = "sess-1", ref: str = "goal-1", **fields: Any) -> AgentTurnEnvelope:
    known: dict[str, Any] = {"job_id": f"dispatch-{ref}", "enqueued_at_ms": 0, "payload_ref": ref}
    return AgentTurnEnvelope(session_id=session, **{**known, **fields})


def enqueue(turns: SqlTurns, turn: AgentTurnEnvelope, *, record: bool = True) -> None:
    if record:
        turns.store.create_session(Session(session_id=turn.session_id))
        turns.store.create(
            TurnRecord(record_id=turn.payload_ref, kind=turn.kind, session_id=turn.session_id)
        )
    turns.queue.put(turn.json_fields())


class Worker:
    """A worker that notes what it ran."""

    def __init__(self, turns: SqlTurns, token: str, **options: Any) -> None:
        self.turns = turns
        self.ran: list[str] = []
        self.deliveries = Deliveries(turns, Claimant(token, f"host-{token}"), self.run, **options)

    def run(self, record: TurnRecord, lease: Lease) -> Ended:
        self.ran.append(record.record_id)
        lease.iterated(Progress(1, (), None))
        self.turns.store.say(record.session_id, "assistant", "done")
        return Ended(Status.COMPLETED, result="ok")

    def next(self) -> Outcome | None:
        return self.deliveries.next()


def read(turns: SqlTurns, ref: str = "goal-1") -> TurnRecord:
    found = turns.store.read(ref)
    assert found is not None
    return found
