"""Records of the legacy inbox: which become events, under which ids, and which cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams.codec import Codec
from streams.core.wire import SourceRejected
from streams.edge.sources.events import SourceEvent, SourceRecord
from streams.edge.sources.legacy_records import legacy_event

AT_MS = 1_700_000_000_000

EVENT: dict[str, Any] = {
    "id": "trigger_evt_old",
    "provider": "github",
    "kind": "issues.opened",
    "received_at": "2026-04-30T10:00:00Z",
    "occurred_at": None,
    "dedupe_key": "delivery-1",
    "trace_id": "trace_old",
    "tenant_id": "acme",
    "headers": {"X-GitHub-Delivery": "delivery-1", "Authorization": "hush"},
    "raw_body": "e30=",
    "provider_payload": {"provider": "github", "raw": {"n": 1}},
    "signature_status": {"state": "failed", "reason": "no match"},
}


def record(value: Any, *, kind: bytes | None = b"event_ingested", offset: int = 7) -> SourceRecord:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    headers = [] if kind is None else [("kind", kind)]
    return SourceRecord("trigger.inbox", 0, offset, AT_MS, b"k", raw, headers)


def made(found: SourceRecord) -> SourceEvent | SourceRejected | None:
    return legacy_event(found, AT_MS + 5, 10_000)


def event(found: SourceRecord) -> SourceEvent:
    result = made(found)
    assert isinstance(result, SourceEvent), result
    Codec().encode("trigger_event", result.event)
    return result


def refused(found: SourceRecord) -> SourceRejected:
    result = made(found)
    assert isinstance(result, dict), result
    Codec().encode("source_rejected", result)
    return result


def test_an_envelope_keeps_its_id_its_target_and_what_it_carries() -> None:
    found = event(record({"trigger_id": "triage", "binding_version": 3, "event": EVENT}))
    assert found.trigger_id == "triage"
    assert found.event == {
        "id": "trigger_evt_old",
        "provider": "github",
        "kind": "issues.opened",
        "received_at": "2026-04-30T10:00:00Z",
        "occurred_at": None,
        "dedupe_key": "delivery-1",
        "trace_id": "trace_old",
        "tenant_id": "acme",
        "headers": {"authorization": "[redacted]", "x-github-delivery": "delivery-1"},
        "raw_body": b"{}",
        "provider_payload": '{"provider": "github", "raw": {"n": 1}}',
        "signature_state": "failed",
        "signature_reason": "no match",
        "batch": None,
    }


def test_an_entry_of_the_former_log_says_its_kind_itself() -> None:
    entry = {"kind": "event_ingested", "payload": {"event": EVENT}, "headers": {}}
    assert event(record(entry, kind=None)).event["id"] == "trigger_evt_old"


def test_what_an_event_lacks_is_derived_from_its_position() -> None:
    bare = {"event": {"provider": "cron", "kind": "cron.tick"}}
    first, again, other = (event(record(bare, offset=offset)).event for offset in (7, 7, 8))
    assert first == again
    assert first["id"] != other["id"]
    assert (first["received_at"], first["dedupe_key"]) == ("2023-11-14T22:13:20.005Z", None)
    assert first["provider_payload"] == "null"


@pytest.mark.parametrize("kind", ["dedupe_claim", "predicate_llm_cache"])
def test_what_is_nothing_to_us_is_passed_over(kind: str) -> None:
    assert made(record({"binding_id": "a"}, kind=kind.encode())) is None
    assert made(record({"kind": kind, "payload": {}}, kind=None)) is None


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (b"\xc3\x01", b"event_ingested", "no envelope of a former release"),
        (b"", b"event_ingested", "no envelope of a former release"),
        (b"{", None, "no envelope of a former release"),
        ({}, b"event_ingested", "missing required field `event`"),
        ({"event": {"kind": "x"}}, b"event_ingested", "missing required field `provider`"),
        ({"event": {**EVENT, "provider": "a:b"}}, b"event_ingested", "$.event.provider"),
        ({"event": {**EVENT, "id": "x" * 257}}, b"event_ingested", "$.event.id"),
        ({"event": {**EVENT, "tenant_id": "a b"}}, b"event_ingested", "$.event.tenant_id"),
        ({"event": {**EVENT, "raw_body": "?"}}, b"event_ingested", "no envelope of a former"),
        ({"event": EVENT}, b"something_else", "kind 'something_else', expected event_ingested"),
        ({"payload": {}}, None, "kind None, expected event_ingested"),
    ],
)
def test_what_cannot_be_an_event_is_kept_with_its_position(
    value: Any, kind: bytes | None, reason: str
) -> None:
    found = refused(record(value, kind=kind))
    assert reason in found["reason"]
    assert (found["topic"], found["offset"], found["trigger_id"]) == ("trigger.inbox", 7, None)
    assert not found["oversized"]


def test_what_is_too_large_says_so() -> None:
    large = {"event": {**EVENT, "provider_payload": "x" * 10_000}}
    assert refused(record(large))["oversized"]
