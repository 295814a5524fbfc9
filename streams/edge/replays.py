"""An event on its way once more: a fresh id, everything else as it was.

A replay passes filter, predicate and gates like any event; only deduplication lets it through,
since its id is new.  It keeps the trace, so that the two stories are found together.

Source: SEMANTICS 2.4; decision 10.2.9 of DESIGN 7.
"""

from __future__ import annotations

from hashlib import blake2b

from streams.codec import Codec
from streams.core.inbox import mailbox_key
from streams.core.wire import EventIngested, TriggerEvent
from streams.edge.ingest.envelopes import ENVELOPES
from streams.edge.ingest.trace import new_uuid
from streams.edge.operator import Request
from streams.engine.bound import MAX_INPUT_BYTES

__all__ = [
    "fresh_event_id",
    "replay_envelope",
    "replay_event_id",
    "replay_request",
    "size_problem",
]

_ROOM_BYTES = 4_000  # for key and headers
_ID_BYTES = 16


def fresh_event_id() -> str:
    """Return an id for the event of a replay."""
    return f"trigger_evt_{new_uuid()}"


def replay_event_id(audit_id: str, event_id: str, /) -> str:
    """Return the id of an event's replay in one operation: sent again, the inbox knows it."""
    digest = blake2b(f"replay#{audit_id}#{event_id}".encode(), digest_size=_ID_BYTES).hexdigest()
    return f"trigger_evt_{digest}"


def replay_envelope(
    event: TriggerEvent,
    event_id: str,
    *,
    replay_of_event_id: str,
    trigger_id: str | None,
    binding_version: int | None = None,
    webhook_path: str | None = None,
    dlq_entry_id: str | None = None,
) -> EventIngested:
    """Return the envelope of a replay of `event` under the id `event_id`."""
    return {
        "trigger_id": trigger_id,
        "binding_version": binding_version,
        "replay_of_event_id": replay_of_event_id,
        "webhook_path": webhook_path,
        "dlq_entry_id": dlq_entry_id,
        "event": {**event, "id": event_id},
    }


def size_problem(codec: Codec, envelope: EventIngested) -> str | None:
    """Return why an envelope is too large for the inbox, or None: a merged batch can be."""
    size = len(codec.encode("event_ingested", envelope))
    limit = MAX_INPUT_BYTES - _ROOM_BYTES
    return None if size <= limit else f"has {size} bytes, at most {limit} can be replayed"


def replay_request(envelope: EventIngested, traceparent: str | None, audit_id: str) -> Request:
    """Return the request that appends a replay's envelope."""
    event = envelope["event"]
    headers = [("audit_id", audit_id)]
    if event["tenant_id"] is not None:
        headers.append(("tenant_id", event["tenant_id"]))
    if traceparent is not None:
        headers.append(("traceparent", traceparent))
    key = mailbox_key(event, replay=True, webhook_path=envelope["webhook_path"])
    return Request(ENVELOPES, "event_ingested", key, envelope, headers=tuple(headers))
