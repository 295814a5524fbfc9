"""Records of the legacy inbox as events: JSON entries as former releases wrote them.

A value is the payload itself, its kind in the header `kind`, or an entry of the former event log,
`{"kind": …, "payload": …}`.

| kind | becomes |
|---|---|
| `event_ingested` | the event, under its own id, for the trigger that it was for |
| `dedupe_claim`, `predicate_llm_cache` | nothing: an event's own envelope is what is remembered |
| anything else, or no JSON | the word that it cannot be an event |

An event without an id gets one derived from its position, so copying twice takes it once.

Source: SEMANTICS 0.1, 1.1, 2.1; DESIGN "Topics", `trigger.inbox`.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b
from typing import Annotated

import msgspec

from streams.core.clock import rfc3339
from streams.core.event_json import PAYLOAD_DEPTH_MAX
from streams.core.wire import SignatureState, SourceRejected, TriggerEvent
from streams.edge.ingest.redaction import redact
from streams.edge.sources.events import SourceEvent, SourceRecord, rejected

__all__ = ["legacy_event"]

_PASSED_OVER = frozenset({"dedupe_claim", "predicate_llm_cache"})
_EVENT = "event_ingested"
_ID_BYTES = 16

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00-\x1f\x7f:]{1,256}\Z")]
_Text = Annotated[str, msgspec.Meta(max_length=256)]


class _Signature(msgspec.Struct):
    state: SignatureState = "unsigned"
    reason: str | None = None


class _Event(msgspec.Struct):
    """What a former release made of a delivery."""

    provider: _Name
    kind: _Text
    id: _Id | None = None
    received_at: _Text | None = None
    occurred_at: _Text | None = None
    dedupe_key: Annotated[str, msgspec.Meta(max_length=1_024)] | None = None
    trace_id: _Text | None = None
    tenant_id: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{1,100}\Z")] | None = None
    headers: dict[str, str] = {}
    raw_body: str | None = None
    provider_payload: msgspec.Raw = msgspec.Raw(b"null")
    signature_status: _Signature = msgspec.field(default_factory=_Signature)
    batch: list[msgspec.Raw] | None = None


class _Envelope(msgspec.Struct):
    event: _Event
    trigger_id: _Id | None = None


class _Entry(msgspec.Struct):
    """An entry of the former event log."""

    kind: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")


_entry = msgspec.json.Decoder(_Entry).decode
_envelope = msgspec.json.Decoder(_Envelope).decode


def legacy_event(
    record: SourceRecord, now_ms: int, bytes_max: int
) -> SourceEvent | SourceRejected | None:
    """Make an event of a record; None for one that is nothing to us.

    Args: now_ms: time of receipt, for an event without one.  bytes_max: of what it may carry.
    """
    value = record.value or b""
    try:
        kind, payload = _kind_and_payload(record, value)
        if kind in _PASSED_OVER:
            return None
        if kind != _EVENT:
            return rejected(record, f"kind {kind!r}, expected {_EVENT}", trigger_id=None)
        envelope = _envelope(payload)
        event = _event(record, envelope.event, now_ms)
    except (msgspec.MsgspecError, binascii.Error, ValueError, RecursionError) as error:
        return rejected(record, f"no envelope of a former release: {error}", trigger_id=None)
    size = len(event["provider_payload"].encode()) + len(event["raw_body"] or b"")
    if size > bytes_max:
        reason = f"the event has {size} bytes, at most {bytes_max} are taken"
        return rejected(record, reason, trigger_id=None, oversized=True)
    digest = _digest(record)
    return SourceEvent(envelope.trigger_id, event, f"00-{digest}-{digest[:16]}-01")


def _kind_and_payload(record: SourceRecord, value: bytes) -> tuple[str | None, bytes]:
    kind = next((content for name, content in record.headers if name == "kind"), None)
    if kind is not None:
        return kind.decode(errors="replace")[:100], value
    entry = _entry(value)
    return entry.kind, bytes(entry.payload)


def _digest(record: SourceRecord) -> str:
    position = f"{record.position}@{record.timestamp_ms}"
    return blake2b(f"legacy#{position}".encode(), digest_size=_ID_BYTES).hexdigest()


def _event(record: SourceRecord, found: _Event, now_ms: int) -> TriggerEvent:
    digest = _digest(record)
    payload = bytes(found.provider_payload).decode()
    if payload.count("[") + payload.count("{") > PAYLOAD_DEPTH_MAX:
        msgspec.json.decode(payload)  # one that no parser bears is none
    raw_body = None if found.raw_body is None else base64.b64decode(found.raw_body, validate=True)
    return {
        "id": found.id or f"trigger_evt_{digest}",
        "provider": found.provider,
        "kind": found.kind,
        "received_at": found.received_at or rfc3339(now_ms),
        "occurred_at": found.occurred_at,
        "dedupe_key": found.dedupe_key or None,
        "trace_id": found.trace_id or f"trace_{digest}",
        "tenant_id": found.tenant_id,
        "headers": redact(found.headers),
        "raw_body": raw_body,
        "provider_payload": payload,
        "signature_state": found.signature_status.state,
        "signature_reason": found.signature_status.reason,
        "batch": None if found.batch is None else [bytes(each).decode() for each in found.batch],
    }
