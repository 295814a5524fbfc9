"""The bytes of a record of `agent_turns` as an envelope: JSON or Avro, or why it is no turn.

Source: SEMANTICS 8.1; DESIGN "Topics".
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import cast

from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.core.turn.envelope import (
    JOB_ID_PREFIX,
    AgentTurnEnvelope,
    EnvelopeError,
    from_record,
    is_json,
    parse_json,
)
from streams.core.wire import AgentTurn

__all__ = ["CAUSE", "decode_turn", "encode_turn", "is_owners"]

CAUSE = "cause"
"""Header of what an owner of a partition writes: the position of the turn that it is about."""

_SCHEMA = "agent_turn"
_ID_BYTES = 16


def encode_turn(codec: Codec, envelope: AgentTurnEnvelope, /) -> bytes:
    """Return the envelope as its producers here write it: the record `agent_turn`, framed."""
    return codec.encode(_SCHEMA, envelope.record())


def decode_turn(
    codec: Codec, value: bytes | None, at: Position, timestamp_ms: int, /
) -> AgentTurnEnvelope:
    """Read a record's value.

    An envelope that names no job gets an id that follows from `at`, and was enqueued at
    `timestamp_ms`: whoever reads it again finds the same.

    Raises: EnvelopeError with every reason why it is no turn.  With a schema registry also the
            registry's own error, in an outage.
    """
    if value is None:
        raise EnvelopeError(("the record has no value, expected a turn",))
    if is_json(value):
        digest = blake2b(str(at).encode(), digest_size=_ID_BYTES).hexdigest()
        return parse_json(
            value, job_id=f"{JOB_ID_PREFIX}{digest}", enqueued_at_ms=max(timestamp_ms, 0)
        )
    try:
        schema, record = codec.decode(value)
    except DecodeError as error:
        raise EnvelopeError((f"the value is no record, {error}",)) from error
    if schema != _SCHEMA:
        raise EnvelopeError((f"the value is a record {schema}, expected {_SCHEMA} or JSON",))
    return from_record(cast("AgentTurn", record))


def is_owners(headers: Iterable[tuple[str, bytes]], /) -> bool:
    """Whether an owner of a partition wrote a record: what the API writes has no cause."""
    return any(name == CAUSE for name, _ in headers)
