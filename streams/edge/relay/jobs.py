"""A record of a queue's topic as the scheduler hears of it: a job, or why it is none.

Anyone may produce to a queue: a record needs no headers of ours, only a value that is a framed
`trigger_dispatch`.  The value is decoded once, for what the scheduler goes by, and travels on as it
is.
"""

from __future__ import annotations

import time
from typing import cast

from streams.audit.log import Headers, LogRecord
from streams.codec import Codec, DecodeError
from streams.core.ready_jobs import JOB_BYTES_MAX, Dealt, Refused, ready_job
from streams.core.wire import TriggerDispatch

__all__ = ["dealt_of"]

_SCHEMA = "trigger_dispatch"
_EXPECTED = "expected a trigger_dispatch record (docs/queues.md)"


def dealt_of(codec: Codec, record: LogRecord) -> Dealt:
    """Return the job that a record holds, or its refusal.

    Raises: BrokerError in an outage of the schema registry that names the value's schema.
    """
    value = record.value
    if value is None:
        return _refused(record, f"the record has no value, {_EXPECTED}")
    if len(value) > JOB_BYTES_MAX:
        reason = f"the value has {len(value)} bytes, expected at most {JOB_BYTES_MAX}"
        return _refused(record, reason, oversized=True)
    try:
        schema, said = codec.decode(value)
    except DecodeError as error:
        return _refused(record, f"{error}; {_EXPECTED}")
    if schema != _SCHEMA:
        return _refused(record, f"the value is a {schema} record, {_EXPECTED}")
    job = ready_job(
        record.offset,
        _produced_at_ms(record),
        cast("TriggerDispatch", said),
        value,
        _header(record.headers, "traceparent"),
    )
    return _refused(record, f"{job}, {_EXPECTED}") if isinstance(job, str) else job


def _refused(record: LogRecord, reason: str, *, oversized: bool = False) -> Refused:
    at = (record.offset, _produced_at_ms(record))
    kind = _header(record.headers, "kind")
    return Refused(*at, oversized, reason, kind, record.key, record.value or b"")


def _produced_at_ms(record: LogRecord) -> int:
    """Return when a record was produced, by its producer's clock; ours when it does not say."""
    return record.timestamp if record.timestamp >= 0 else time.time_ns() // 1_000_000


def _header(headers: Headers, name: str) -> str | None:
    for each, content in headers:
        if each == name:
            return bytes(content or b"").decode(errors="replace")
    return None
