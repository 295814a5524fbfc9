"""One record of a source's topic as an event, or as the word that it cannot be one.  Pure.

Ids are derived from the trigger and the record's position and time: however often a record is read
again, the inbox takes it once.  The time is part of it since a topic that is made anew begins at
offset 0 again.

    payload = {"event": kind, "source": "kafka", "stream": topic, "partition": 3, "offset": 1042,
               "key": "order-7", "timestamp": "2026-…Z", "headers": {…}, "raw": <the value>}

The kind is the header `ce_type` (CloudEvents' Kafka binding) or `kind`, else `kafka.record`; the
tenant is the header `tenant_id`, the trace is continued from `traceparent`.

Source: SEMANTICS 1.1, stream family; DESIGN law 4.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

import msgspec

from streams.core.clock import rfc3339
from streams.core.foreign import KEY_BYTES_MAX, KIND_CHARS_MAX, RAW_BYTES_MAX, REASON_CHARS_MAX
from streams.core.record import Position
from streams.core.stream_source import StreamSource
from streams.core.wire import SourceRejected, TriggerEvent
from streams.edge.ingest.events import EventRequest
from streams.edge.ingest.redaction import redact
from streams.edge.ingest.trace import continue_trace
from streams.edge.sources.values import BadValue, ReadValue, Value

__all__ = ["KIND_DEFAULT", "SourceEvent", "SourceRecord", "event_of", "rejected"]

KIND_DEFAULT = "kafka.record"

HEADERS_MAX = 100
HEADERS_BYTES_MAX = 65_536

_ID_BYTES = 16
_TIME_MAX_MS = 253_402_300_799_999  # the end of the year 9999
_NO_VALUE = Value(b"null")


class SourceRecord(NamedTuple):
    """A record as it was fetched; `timestamp_ms` is the topic's, `value` None a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

    @property
    def position(self) -> Position:
        """Return where it stands."""
        return Position(self.topic, self.partition, self.offset)


class SourceEvent(NamedTuple):
    """An event, the one trigger that it is for, if any, and the trace that it carries on."""

    trigger_id: str | None
    event: TriggerEvent
    traceparent: str


class _Oversized(Exception):  # noqa: N818 - as BadValue
    """The record is more than one may derive from."""


def event_of(
    source: StreamSource, record: SourceRecord, read: ReadValue, now_ms: int, bytes_max: int
) -> SourceEvent | SourceRejected | None:
    """Make an event of a record.

    Args:    read: reads a value of the source's format.  now_ms: time of receipt.  bytes_max: of
             what the event may carry.
    Returns: the event; None when the trigger does not take events of that kind; the word that the
             record cannot be an event.
    Raises:  what `read` raises besides BadValue: an outage.
    """
    try:
        headers = _headers(record)
        kind = _kind(headers)
        if source.events and kind not in source.events:
            return None
        value = _NO_VALUE if record.value is None else read(record.value)
        payload = _payload(source, record, kind, headers, value)
        if len(payload) + len(value.raw_body or b"") > bytes_max:
            size = len(record.value or b"")
            raise _Oversized(f"the event has {len(payload)} bytes of a record of {size}")
    except _Oversized as error:
        reason = f"{error}, at most {bytes_max} are taken"
        return rejected(record, reason, trigger_id=source.trigger_id, oversized=True)
    except BadValue as error:
        return rejected(record, str(error), trigger_id=source.trigger_id)
    return _event(source, record, kind, headers, payload, value.raw_body, now_ms)


def _headers(record: SourceRecord) -> dict[str, str]:
    if len(record.headers) > HEADERS_MAX:
        raise _Oversized(f"the record has {len(record.headers)} headers, more than {HEADERS_MAX},")
    size = sum(len(name) + len(content or b"") for name, content in record.headers)
    if size > HEADERS_BYTES_MAX:
        raise _Oversized(f"the record has {size} bytes of headers, more than {HEADERS_BYTES_MAX},")
    texts = {name: (content or b"").decode(errors="replace") for name, content in record.headers}
    return redact(texts)


def _kind(headers: dict[str, str]) -> str:
    for name in ("ce_type", "kind"):
        kind = headers.get(name)
        if kind is not None and _is_field("kind", kind):
            return kind
    return KIND_DEFAULT


def _is_field(name: str, value: str) -> bool:
    """Whether an event may have that value, by the rules of the event API."""
    given = {"provider": "kafka", "kind": KIND_DEFAULT, name: value}
    try:
        msgspec.convert(given, EventRequest)
    except msgspec.ValidationError:
        return False
    return True


def _payload(
    source: StreamSource, record: SourceRecord, kind: str, headers: dict[str, str], value: Value
) -> bytes:
    payload: dict[str, Any] = {
        "event": kind,
        "source": source.provider,
        "stream": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _key(record.key),
        "timestamp": _time(record.timestamp_ms),
        "headers": headers,
        "raw": msgspec.Raw(value.json),
    }
    return msgspec.json.encode(payload)


def _time(timestamp_ms: int) -> str | None:
    """Return a record's time; None where it has none that a calendar knows."""
    return rfc3339(timestamp_ms) if 0 < timestamp_ms <= _TIME_MAX_MS else None


def _key(key: bytes | None) -> str | dict[str, str] | None:
    """Return a key as text; bytes that are no text as `{"base64": …}`."""
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(key).decode()}


def _event(
    source: StreamSource,
    record: SourceRecord,
    kind: str,
    headers: dict[str, str],
    payload: bytes,
    raw_body: bytes | None,
    now_ms: int,
) -> SourceEvent:
    delivery = f"{source.trigger_id}@{record.position}@{record.timestamp_ms}"
    digest = blake2b(f"stream#{delivery}".encode(), digest_size=_ID_BYTES).hexdigest()
    tenant_id = headers.get("tenant_id")
    if tenant_id is not None and not _is_field("tenant_id", tenant_id):
        tenant_id = None
    trace = continue_trace(headers.get("traceparent"))
    event: TriggerEvent = {
        "id": f"trigger_evt_{digest}",
        "provider": source.provider,
        "kind": kind,
        "received_at": rfc3339(now_ms),
        "occurred_at": _time(record.timestamp_ms),
        "dedupe_key": delivery,
        "trace_id": f"trace_{digest}" if trace is None else trace.trace_id,
        "tenant_id": tenant_id,
        "headers": headers,
        "raw_body": raw_body,
        "provider_payload": payload.decode(),
        "signature_state": "unsigned",
        "signature_reason": None,
        "batch": None,
    }
    own = f"00-{digest}-{digest[:16]}-01"
    return SourceEvent(source.trigger_id, event, own if trace is None else trace.traceparent)


def rejected(
    record: SourceRecord, reason: str, *, trigger_id: str | None, oversized: bool = False
) -> SourceRejected:
    """Return the word that a record cannot become an event, with what is kept of it."""
    value = record.value or b""
    kind = next((content for name, content in record.headers if name == "kind"), None)
    return {
        "trigger_id": trigger_id,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "oversized": oversized,
        "reason": reason[:REASON_CHARS_MAX],
        "kind": None if kind is None else kind.decode(errors="replace")[:KIND_CHARS_MAX],
        "key": None if record.key is None else record.key[:KEY_BYTES_MAX],
        "raw": value[:RAW_BYTES_MAX],
        "raw_size": len(value),
        "raw_sha256": sha256(value).hexdigest(),
    }
