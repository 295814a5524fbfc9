"""From what a sender says to a normalized event: the one place where ids and times are made.

`EventRequest` is what a sender may say; the same declarations read it fast and, when it is wrong,
say everything that is wrong with it.

Source: SEMANTICS 1.1, 2.1; DESIGN law 4.
"""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated

import msgspec

from streams.core.clock import rfc3339
from streams.core.wire import TriggerEvent
from streams.edge.ingest.redaction import redact
from streams.edge.ingest.trace import Trace, new_uuid

__all__ = [
    "PROBLEMS_MAX",
    "EventRequest",
    "explain_event",
    "explain_json",
    "is_possible",
    "normalize",
]

_Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
_Kind = Annotated[str, msgspec.Meta(pattern=r"\A[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,199}\Z")]
# Without a colon: a dedupe key is remembered as `provider:key`, an event id as it is.
_Id = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._~-]{1,200}\Z")]
_DedupeKey = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00-\x1f\x7f]{1,1000}\Z")]
_Tenant = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{1,100}\Z")]
_Time = Annotated[
    str,
    msgspec.Meta(pattern=r"\A\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)\Z"),
]
_Header = Annotated[str, msgspec.Meta(pattern=r"\A[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}\Z")]
_HeaderValue = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00-\x08\x0a-\x1f\x7f]{0,8192}\Z")]
_Headers = Annotated[dict[_Header, _HeaderValue], msgspec.Meta(max_length=100)]

PROBLEMS_MAX = 50
"""Problems of one body that are told: what is looked up for each of them is bounded with them."""

_NULL = msgspec.Raw(b"null")


class EventRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event as a sender gives it: provider and kind are required.

    `payload` is any JSON, kept as the sender spelled it.  `headers` are those of the provider's
    delivery, `raw_body` its body when that was no JSON.
    """

    provider: _Name
    kind: _Kind
    payload: msgspec.Raw = _NULL
    id: _Id | None = None
    dedupe_key: _DedupeKey | None = None
    tenant_id: _Tenant | None = None
    occurred_at: _Time | None = None
    headers: _Headers = {}
    raw_body: bytes | None = None


_EXPECTED: Mapping[str, str] = {
    "provider": "1 to 100 letters, digits, dots, dashes or underscores",
    "kind": "text of 1 to 200 characters without control characters, such as issues.opened",
    "payload": "JSON",
    "id": "1 to 200 letters, digits, or . _ ~ -",
    "dedupe_key": "text of 1 to 1000 characters without control characters",
    "tenant_id": "1 to 100 letters, digits, dashes or underscores",
    "occurred_at": "an RFC 3339 time such as 2026-11-28T09:30:00Z",
    "raw_body": "base64",
    "headers": "at most 100 names with text values of at most 8192 characters",
}

_LOOSE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_FIELDS = {field.name: field for field in msgspec.structs.fields(EventRequest)}
_LEAP_SECOND = re.compile(r":60(?=[.Zz+-])")


def is_possible(request: EventRequest) -> bool:
    """Whether a request that could be read also means something: no 31 June."""
    return request.occurred_at is None or _is_a_time(request.occurred_at)


def explain_event(text: bytes, where: str = "", *, told: int = 0) -> list[str]:
    """Return everything that is wrong with one event; nothing when it is sound.

    Args:    text: its JSON.  where: what stands before each field's name, such as `events[2].`.
             told: problems of the same body that are told before these.
    """
    whole = where.removesuffix(".") or "the body"
    try:
        given = _LOOSE.decode(text)
    except msgspec.ValidationError:
        return [f"{whole} is no object, expected an event"]
    except (msgspec.DecodeError, RecursionError) as error:
        return [f"{whole} {explain_json(text, error)}"]
    problems: list[str] = []
    for name, raw in given.items():
        if name not in _FIELDS:
            is_told = told + len(problems) < PROBLEMS_MAX
            near = get_close_matches(name, _FIELDS, n=1) if is_told else []
            remark = f"did you mean {near[0]}?" if near else f"known are {', '.join(_FIELDS)}"
            problems.append(f"{where}{name[:100]} is not a field of an event; {remark}")
        elif not _fits(name, raw):
            problems.append(f"{where}{name}: expected {_EXPECTED[name]}")
    problems += [
        f"{where}{name} is missing, expected {_EXPECTED[name]}"
        for name, field in _FIELDS.items()
        if field.required and name not in given
    ]
    return problems


def explain_json(text: bytes, error: Exception) -> str:
    """Say why a text is no JSON that we take; continues what stands for the text."""
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if text.startswith(codecs.BOM_UTF8):
        return "begins with a byte order mark, which is no JSON"
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return f"is not JSON: {error}"
    return "has a text with half of a surrogate pair (\\ud800 to \\udfff), which UTF-8 cannot say"


def _refuse_constant(name: str) -> None:
    """JSON has no NaN and no Infinity, whatever Python's own parser takes."""
    raise ValueError(name)


def _fits(name: str, raw: msgspec.Raw) -> bool:
    try:
        value = msgspec.json.decode(raw, type=_FIELDS[name].type)
    except (msgspec.DecodeError, RecursionError):
        return False
    return name != "occurred_at" or value is None or _is_a_time(value)


def _is_a_time(text: str) -> bool:
    try:
        datetime.fromisoformat(_LEAP_SECOND.sub(":59", text.upper()))
    except ValueError:
        return False
    return True


def normalize(request: EventRequest, trace: Trace) -> TriggerEvent:
    """Return the event to append: with id, trace and time of receipt, and without secrets."""
    return {
        "id": request.id or f"trigger_evt_{new_uuid()}",
        "provider": request.provider,
        "kind": request.kind,
        "received_at": rfc3339(time.time_ns() // 1_000_000),
        "occurred_at": request.occurred_at,
        "dedupe_key": request.dedupe_key,
        "trace_id": trace.trace_id,
        "tenant_id": request.tenant_id,
        "headers": redact(request.headers),
        "raw_body": request.raw_body,
        "provider_payload": bytes(request.payload).decode(),
        "signature_state": "unsigned",
        "signature_reason": None,
        "batch": None,
    }
