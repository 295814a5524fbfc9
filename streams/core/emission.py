"""What a handler emits becomes events in the transaction that ends its dispatch.

An emission travels in the outcome of its attempt.  It counts when the outcome does: a handler that
fails has emitted nothing, and of several runs of an attempt one has emitted.  The ids are derived
from the dispatch, so the inbox takes each emission once.

Source: SEMANTICS 1.1, channel events; DESIGN "An event"; law 6.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b

from streams.core import bounds
from streams.core.channel import PROVIDER, channel_problem, event_kind
from streams.core.clock import rfc3339
from streams.core.dispatch_moves import event_of
from streams.core.inbox import mailbox_key
from streams.core.record import Output, Rejection
from streams.core.state import State
from streams.core.wire import Emission, EventIngested, RowDispatch, TriggerEvent

ENVELOPES = "trigger.inbox.envelopes"

EMISSIONS_MAX = 100
"""Emissions of one attempt."""

EMISSIONS_BYTES_MAX = 200_000
"""Bytes of all payloads of one attempt: beside a result, they must fit into its outcome."""

DEPTH_MAX = 32
"""Emissions in a row that one event may lead to: a trigger that feeds itself comes to an end."""

DEDUPE_KEY_CHARS_MAX = 500

DEPTH_HEADER = "harn-emit-depth"
PARENT_HEADER = "harn-emitted-by"

_ID_BYTES = 16


def problem(emissions: Sequence[Emission], /) -> Rejection | None:
    """Return what makes the emissions of an outcome unusable, or None."""
    if len(emissions) > EMISSIONS_MAX:
        found = f"{len(emissions)} emissions, expected at most {EMISSIONS_MAX}"
        return Rejection("DSP-006", found)
    for emission in emissions:
        found = channel_problem(emission["channel"], emission["scope"], emission["scope_id"])
        key = ("dedupe_key", emission["dedupe_key"], DEDUPE_KEY_CHARS_MAX)
        found = found or bounds.text_problem((key,))
        if found is not None:
            return Rejection("DSP-006", f"an emission: {found}")
    return None


def depth_of(headers: dict[str, str], /) -> int:
    """Return how many emissions in a row led to an event with these headers."""
    text = headers.get(DEPTH_HEADER, "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 4 else 0


def emitted(state: State, row: RowDispatch, emissions: Sequence[Emission], /) -> list[Output]:
    """Return the envelopes of what an attempt emitted that has succeeded."""
    if not emissions:
        return []
    event = event_of(state, row)
    return [
        _envelope(state, row, event, emission, place) for place, emission in enumerate(emissions)
    ]


def _envelope(
    state: State, row: RowDispatch, event: TriggerEvent, emission: Emission, place: int
) -> Output:
    scope, scope_id = emission["scope"], emission["scope_id"]
    tenant_id = scope_id if scope == "tenant" else event["tenant_id"]
    kind = event_kind(scope, scope_id, emission["channel"])
    delivery = f"{row['dispatch_id']}.{place}"
    own_key = emission["dedupe_key"]
    dedupe_key = delivery if own_key is None else channel_key(kind, scope_id, own_key)
    digest = blake2b(f"emit#{delivery}".encode(), digest_size=_ID_BYTES).hexdigest()
    emitted_event: TriggerEvent = {
        "id": f"trigger_evt_{digest}",
        "provider": PROVIDER,
        "kind": kind,
        "received_at": rfc3339(state.now_ms),
        "occurred_at": None,
        "dedupe_key": dedupe_key,
        "trace_id": event["trace_id"],
        "tenant_id": tenant_id,
        "headers": {
            DEPTH_HEADER: str(depth_of(dict(event["headers"])) + 1),
            PARENT_HEADER: row["dispatch_id"],
        },
        "raw_body": None,
        "provider_payload": channel_payload(
            emission["channel"], scope, scope_id, emission["payload"]
        ),
        "signature_state": "unsigned",
        "signature_reason": None,
        "batch": None,
    }
    envelope: EventIngested = {
        "trigger_id": None,
        "binding_version": None,
        "replay_of_event_id": None,
        "webhook_path": None,
        "dlq_entry_id": None,
        "event": emitted_event,
    }
    headers: tuple[tuple[str, str], ...] = ()
    if tenant_id is not None:
        headers = (("tenant_id", tenant_id),)
    if row["traceparent"] is not None:
        headers = (*headers, ("traceparent", row["traceparent"]))
    key = mailbox_key(emitted_event)
    return Output(ENVELOPES, "event_ingested", key, envelope, headers=headers)


def channel_key(kind: str, scope_id: str, own_key: str, /) -> str:
    """Return a delivery key of a channel: the same key to another channel is another."""
    return f"{kind}/{scope_id}:{own_key}"


def channel_payload(channel: str, scope: str, scope_id: str, payload: str, /) -> str:
    """Return the payload of a channel's event as JSON text; `payload` is JSON text itself."""
    about = {"channel": channel, "scope": scope, "scope_id": scope_id}
    text = json.dumps(about, separators=(",", ":"), ensure_ascii=False)
    return f'{text[:-1]},"payload":{payload}}}'
