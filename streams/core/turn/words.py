"""What a worker says of turns in their partition: begun, given back, ended, or no turn at all.

Each is a record for the partition number of the turn; it is committed with the turn's place in
`agent_turns`, or before.

Source: DESIGN "Topics", "A turn", decision A2; SEMANTICS 8.5, 8.8.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from streams.core.bounds import shortened
from streams.core.record import Output, Position
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError
from streams.core.turn.record import Holder
from streams.core.wire import (
    AgentJobStatus,
    TurnClaimed,
    TurnClaimReleased,
    TurnDeadLettered,
    TurnFinished,
    TurnOutcome,
    TurnReleaseReason,
)

__all__ = [
    "CLAIMS",
    "DEAD_LETTERS",
    "JOBS",
    "SESSIONS",
    "TURNS",
    "Tried",
    "claimed",
    "dead_lettered",
    "finished",
    "released",
]

TURNS = "agent_turns"
CLAIMS = "agent.turns.claims"
DEAD_LETTERS = "agent.turns.dlq"
JOBS = "agent.jobs"
SESSIONS = "agent.sessions"

_RAW_BYTES_MAX = 65_536
_KEY_BYTES_MAX = 1_024
_ERROR_CHARS_MAX = 4_000


class Tried(NamedTuple):
    """An attempt at a turn: how often it was claimed, from 1, and when it began."""

    attempt: int
    started_at_ms: int


def claimed(
    envelope: AgentTurnEnvelope, at: Position, by: Holder, /, *, attempt: int, now_ms: int
) -> Output:
    """Say that a turn was begun for the `attempt`-th time, from 1."""
    value: TurnClaimed = {
        "job_id": envelope.job_id,
        "session_id": envelope.session_id,
        "kind": envelope.kind,
        "payload_ref": envelope.payload_ref,
        "turn_offset": at.offset,
        "attempt": attempt,
        "claimed_by": by.token,
        "dispatch_host": by.host,
        "fence": by.fence,
        "claimed_at_ms": now_ms,
    }
    return _output("turn_claimed", envelope, at, value)


def released(
    envelope: AgentTurnEnvelope,
    at: Position,
    by: Holder,
    /,
    *,
    reason: TurnReleaseReason,
    now_ms: int,
) -> Output:
    """Say that a turn was given back: the next owner begins it at once."""
    value: TurnClaimReleased = {
        "job_id": envelope.job_id,
        "session_id": envelope.session_id,
        "turn_offset": at.offset,
        "claimed_by": by.token,
        "fence": by.fence,
        "reason": reason,
        "released_at_ms": now_ms,
    }
    return _output("turn_claim_released", envelope, at, value)


def finished(
    envelope: AgentTurnEnvelope,
    at: Position,
    by: Holder,
    /,
    *,
    outcome: TurnOutcome,
    record_status: AgentJobStatus | None,
    error: str | None = None,
    tried: Tried | None = None,
    now_ms: int,
) -> Output:
    """Say that a turn has ended for good; `tried` is its last attempt, None when it never ran."""
    value: TurnFinished = {
        "job_id": envelope.job_id,
        "session_id": envelope.session_id,
        "kind": envelope.kind,
        "payload_ref": envelope.payload_ref,
        "turn_offset": at.offset,
        "outcome": outcome,
        "record_status": record_status,
        "error": None if error is None else shortened(error),
        "executed_by": by.token,
        "fence": by.fence,
        "attempt": 0 if tried is None else tried.attempt,
        "started_at_ms": None if tried is None else tried.started_at_ms,
        "finished_at_ms": now_ms,
    }
    return _output("turn_finished", envelope, at, value)


def dead_lettered(
    error: EnvelopeError,
    at: Position,
    by: Holder,
    /,
    *,
    key: bytes | None,
    raw: bytes | None,
    timestamp_ms: int,
) -> Output:
    """Keep a record that is no turn: its bytes, why it is none, and where it stands.

    All but who met it follows from the record, so that it is known again when it is met twice.
    """
    body = raw or b""
    value: TurnDeadLettered = {
        "partition": at.partition,
        "offset": at.offset,
        "timestamp_ms": timestamp_ms,
        "error": str(error)[:_ERROR_CHARS_MAX],
        "job_id": error.job_id,
        "session_id": error.session_id,
        "key": None if key is None else key[:_KEY_BYTES_MAX],
        "raw": None if raw is None else raw[:_RAW_BYTES_MAX],
        "raw_size": len(body),
        "raw_sha256": sha256(body).hexdigest(),
        "executed_by": by.token,
    }
    return Output(DEAD_LETTERS, "turn_dead_lettered", str(at), value, partition=at.partition)


def _output(
    kind: str,
    envelope: AgentTurnEnvelope,
    at: Position,
    value: TurnClaimed | TurnClaimReleased | TurnFinished,
) -> Output:
    headers = (("tenant_id", envelope.tenant),) if envelope.tenant else ()
    return Output(CLAIMS, kind, envelope.job_id, value, partition=at.partition, headers=headers)
