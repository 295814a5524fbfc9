"""What becomes of turns in a database whose sessions are busy: `when_busy` of each that is put.

It is decided in the transaction that appends the turn, and that has named its session: nothing of
the session comes or goes meanwhile.  A turn is in the way of another one as it is on Kafka, and
while its goal or task has not ended: it may still be in the queue then, when its worker was killed
before the ack.

Source: `streams.core.turn.policies`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from streams.core.turn.claim import ENDED, Run
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError, parse_json
from streams.core.turn.policies import is_in_the_way
from streams.edge.turns.database import Transaction
from streams.edge.turns.sql_records import SqlRecords
from streams.edge.turns.task_queue import Item, TurnRejected

__all__ = ["SqlPolicies"]

_PAGE = 500
_UNNAMED = "a turn without job_id"
_BEFORE = """SELECT id, data FROM agent_dispatch_queue
    WHERE session_key = ? AND id > ? AND interrupted_by IS NULL ORDER BY id LIMIT ?"""
_INTERRUPT = "UPDATE agent_dispatch_queue SET interrupted_by = ? WHERE id IN "


class _Other(NamedTuple):
    """What is kept of a turn that is in the way: there may be as many as a queue holds."""

    job_id: str
    payload_ref: str


class SqlPolicies:
    """Policies of turns whose records are in the same database."""

    def __init__(self, records: SqlRecords) -> None:
        self._records = records

    def apply(self, transaction: Transaction, session_key: str, item: Item) -> None:
        """Apply an item's policy to it, or to those before it; it is appended next.

        All items of its session are looked at, a page at a time.  A second turn of a job that has
        not ended waits for the first one, and is skipped.

        Raises: TurnRejected, and the transaction is to be undone.
        """
        if item.get("when_busy", "enqueue") == "enqueue":
            return
        envelope = _envelope(item)
        if envelope is None:
            return  # whoever takes it buries it
        before = self._in_the_way(transaction, session_key, envelope)
        if envelope.when_busy == "reject":
            ends = (other for _, other in before if not self._has_ended(transaction, other))
            if (first := next(ends, None)) is not None:
                raise TurnRejected(first.job_id)
        elif before and isinstance(self._records.decision(transaction, envelope), Run):
            for at in range(0, len(before), _PAGE):
                page = [number for number, _ in before[at : at + _PAGE]]
                sql = _INTERRUPT + f"({', '.join('?' * len(page))})"
                transaction.change(sql, (envelope.job_id, *page))

    def _in_the_way(
        self, transaction: Transaction, session_key: str, envelope: AgentTurnEnvelope
    ) -> list[tuple[int, _Other]]:
        """Return what is in a turn's way; nothing when an earlier turn is of its own job."""
        found: list[tuple[int, _Other]] = []
        for number, other in _before(transaction, session_key):
            if other.session_id != envelope.session_id:
                continue
            if other.job_id == envelope.job_id:
                return []
            if is_in_the_way(other, envelope):
                found.append((number, _Other(other.job_id, other.payload_ref)))
        return found

    def _has_ended(self, transaction: Transaction, turn: _Other) -> bool:
        """Whether there is nothing to do for a turn any more, though it was not acked yet."""
        return self._records.status(transaction, turn.payload_ref) in ENDED


def _before(transaction: Transaction, session_key: str) -> Iterator[tuple[int, AgentTurnEnvelope]]:
    """Yield the turns of a session that nobody has interrupted, and their numbers."""
    last = -1
    while rows := transaction.execute(_BEFORE, (session_key, last, _PAGE)):
        for number, text in rows:
            last = number
            if (turn := _parsed(text)) is not None:
                yield number, turn


def _envelope(item: Item) -> AgentTurnEnvelope | None:
    """Read an item; None when it is no turn."""
    return _parsed(json.dumps(dict(item)))


def _parsed(text: str) -> AgentTurnEnvelope | None:
    try:
        return parse_json(text.encode(), job_id=_UNNAMED, enqueued_at_ms=0)
    except EnvelopeError:
        return None
