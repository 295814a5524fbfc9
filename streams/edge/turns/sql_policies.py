"""What becomes of turns in a database whose sessions are busy: `when_busy` of each that is put.

It is decided in the transaction that appends the turn, and that has named its session: nothing of
the session comes or goes meanwhile.  A turn is in the way of another one as it is on Kafka, and
while its goal or task has not ended: it may still be in the queue then, when its worker was killed
before the ack.

Source: `streams.core.turn.policies`.
"""

from __future__ import annotations

import json

from streams.core.turn.claim import ENDED, Run
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError, parse_json
from streams.core.turn.policies import is_in_the_way
from streams.edge.turns.database import Transaction
from streams.edge.turns.sql_records import SqlRecords
from streams.edge.turns.task_queue import Item, TurnRejected

__all__ = ["SqlPolicies"]

_UNNAMED = "a turn without job_id"
_BEFORE = """SELECT id, data FROM agent_dispatch_queue
    WHERE session_key = ? AND interrupted_by IS NULL ORDER BY id"""
_INTERRUPT = "UPDATE agent_dispatch_queue SET interrupted_by = ? WHERE id = ?"


class SqlPolicies:
    """Policies of turns whose records are in the same database."""

    def __init__(self, records: SqlRecords) -> None:
        self._records = records

    def apply(self, transaction: Transaction, session_key: str, item: Item) -> None:
        """Apply an item's policy to it, or to those before it; it is appended next.

        Raises: TurnRejected, and the transaction is to be undone.
        """
        if item.get("when_busy", "enqueue") == "enqueue":
            return
        envelope = _envelope(item)
        if envelope is None:
            return  # whoever takes it buries it
        if envelope.when_busy == "reject":
            for _, other in self._in_the_way(transaction, session_key, envelope):
                raise TurnRejected(other.job_id)
        elif isinstance(self._records.decision(transaction, envelope), Run):
            for number, _ in self._in_the_way(transaction, session_key, envelope):
                transaction.change(_INTERRUPT, (envelope.job_id, number))

    def _in_the_way(
        self, transaction: Transaction, session_key: str, envelope: AgentTurnEnvelope
    ) -> list[tuple[int, AgentTurnEnvelope]]:
        before = [
            (number, other)
            for number, text in transaction.execute(_BEFORE, (session_key,))
            if (other := _parsed(text)) is not None and other.session_id == envelope.session_id
        ]
        if any(other.job_id == envelope.job_id for _, other in before):
            return []  # a second turn of a job, which is skipped when the first one has ended
        return [
            (number, other)
            for number, other in before
            if is_in_the_way(other, envelope)
            and self._records.status(transaction, other.payload_ref) not in ENDED
        ]


def _envelope(item: Item) -> AgentTurnEnvelope | None:
    """Read an item; None when it is no turn."""
    return _parsed(json.dumps(dict(item)))


def _parsed(text: str) -> AgentTurnEnvelope | None:
    try:
        return parse_json(text.encode(), job_id=_UNNAMED, enqueued_at_ms=0)
    except EnvelopeError:
        return None
