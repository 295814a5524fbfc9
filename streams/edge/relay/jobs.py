"""A record of a queue's topic as the scheduler hears of it: a job, or why it is none.

Anyone may produce to a queue: a record needs no headers of ours, only a value that is a framed
`trigger_dispatch`.  The value is decoded once, for what the scheduler goes by, and travels on as it
is.
"""

from __future__ import annotations

import time
from typing import Any, cast

from confluent_kafka import Message

from streams.codec import Codec, DecodeError
from streams.core.ready_jobs import JOB_BYTES_MAX, Dealt, Refused, ready_job
from streams.core.wire import TriggerDispatch

__all__ = ["dealt_of"]

_SCHEMA = "trigger_dispatch"
_EXPECTED = "expected a trigger_dispatch record (docs/queues.md)"


def dealt_of(codec: Codec, message: Message) -> Dealt:
    """Return the job that a record holds, or its refusal.

    Raises: BrokerError in an outage of the schema registry that names the value's schema.
    """
    value: Any = message.value()
    if value is None:
        return _refused(message, f"the record has no value, {_EXPECTED}")
    if len(value) > JOB_BYTES_MAX:
        reason = f"the value has {len(value)} bytes, expected at most {JOB_BYTES_MAX}"
        return _refused(message, reason, oversized=True)
    try:
        schema, said = codec.decode(value)
    except DecodeError as error:
        return _refused(message, f"{error}; {_EXPECTED}")
    if schema != _SCHEMA:
        return _refused(message, f"the value is a {schema} record, {_EXPECTED}")
    job = ready_job(
        _offset(message),
        _timestamp_ms(message),
        cast("TriggerDispatch", said),
        value,
        _header(message.headers(), "traceparent"),
    )
    return _refused(message, f"{job}, {_EXPECTED}") if isinstance(job, str) else job


def _refused(message: Message, reason: str, *, oversized: bool = False) -> Refused:
    key: Any = message.key()
    value: Any = message.value()
    kind = _header(message.headers(), "kind")
    at = (_offset(message), _timestamp_ms(message))
    return Refused(*at, oversized, reason, kind, key, value or b"")


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a fetched record has an offset"
    return offset


def _timestamp_ms(message: Message) -> int:
    """Return when a record was produced, by its producer's clock; ours when it does not say."""
    _, timestamp_ms = message.timestamp()
    return timestamp_ms if timestamp_ms >= 0 else time.time_ns() // 1_000_000


def _header(headers: Any, name: str) -> str | None:  # noqa: ANN401 - the client says more than it does
    for each, content in headers or ():
        if each == name:
            return content.decode(errors="replace") if isinstance(content, bytes) else content
    return None
