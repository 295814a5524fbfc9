"""Records of other topics as events: ids from positions, values by format, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams.codec import Codec
from streams.core.stream_source import StreamSource
from streams.core.wire import SourceRejected
from streams.edge.sources.events import (
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    SourceEvent,
    SourceRecord,
    event_of,
)
from streams.edge.sources.values import BadValue, reader_of

AT_MS = 1_700_000_000_000
BYTES_MAX = 10_000


def source(
    trigger_id: str = "orders", events: tuple[str, ...] = (), **changes: Any
) -> StreamSource:
    fields: dict[str, Any] = {
        "trigger_id": trigger_id,
        "namespace": "default",
        "provider": "kafka",
        "topics": ("shop.orders",),
        "format": "json",
        "start": "latest",
        "events": events,
    }
    return StreamSource(**{**fields, **changes})


def record(value: bytes | None = b'{"n":1}', **changes: Any) -> SourceRecord:
    fields: dict[str, Any] = {
        "topic": "shop.orders",
        "partition": 3,
        "offset": 1_042,
        "timestamp_ms": AT_MS,
        "key": b"order-7",
        "value": value,
        "headers": [("tenant_id", b"acme"), ("x-secret", b"hush")],
    }
    return SourceRecord(**{**fields, **changes})


def made(
    found: SourceRecord, of: StreamSource | None = None
) -> SourceEvent | SourceRejected | None:
    of = of or source()
    return event_of(of, found, reader_of(of.format, None), AT_MS + 5, BYTES_MAX)


def event(found: SourceRecord, of: StreamSource | None = None) -> SourceEvent:
    result = made(found, of)
    assert isinstance(result, SourceEvent), result
    return result


def refused(found: SourceRecord, of: StreamSource | None = None) -> SourceRejected:
    result = made(found, of)
    assert isinstance(result, dict), result
    Codec().encode("source_rejected", result)
    return result


def payload(found: SourceEvent) -> dict[str, Any]:
    return json.loads(found.event["provider_payload"])


# ---------------------------------------------------------------------- events
def test_a_record_becomes_an_event_for_its_trigger_with_its_coordinates() -> None:
    found = event(record())
    assert found.trigger_id == "orders"
    assert (found.event["provider"], found.event["kind"]) == ("kafka", "kafka.record")
    assert found.event["received_at"] == "2023-11-14T22:13:20.005Z"
    assert found.event["occurred_at"] == "2023-11-14T22:13:20.000Z"
    assert found.event["tenant_id"] == "acme"
    assert found.event["headers"] == {"tenant_id": "acme", "x-secret": "[redacted]"}
    assert payload(found) == {
        "event": "kafka.record",
        "source": "kafka",
        "stream": "shop.orders",
        "partition": 3,
        "offset": 1_042,
        "key": "order-7",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "headers": {"tenant_id": "acme", "x-secret": "[redacted]"},
        "raw": {"n": 1},
    }
    Codec().encode("trigger_event", found.event)


def test_ids_follow_from_trigger_position_and_time_alone() -> None:
    first = event(record())
    again = event(record(b'{"n":2}', headers=[]))
    assert (first.event["id"], first.event["dedupe_key"]) == (
        again.event["id"],
        again.event["dedupe_key"],
    )
    others = [
        event(record(), source("other")),
        event(record(offset=1_043)),
        event(record(partition=4)),
        event(record(topic="shop.refunds")),
        event(record(timestamp_ms=AT_MS + 1)),  # the topic was made anew
    ]
    ids = {found.event["id"] for found in (first, *others)}
    keys = {found.event["dedupe_key"] for found in (first, *others)}
    assert (len(ids), len(keys)) == (6, 6)


def test_the_trace_and_the_kind_are_those_of_the_headers() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    found = event(record(headers=[("ce_type", b"order.created"), ("traceparent", trace.encode())]))
    assert found.event["kind"] == payload(found)["event"] == "order.created"
    assert found.event["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert found.traceparent.startswith("00-0af7651916cd43dd8448eb211c80319c-")
    assert event(record(headers=[("kind", b"order.paid")])).event["kind"] == "order.paid"


@pytest.mark.parametrize("kind", [b"", b"x" * 201, b"a\x00b", b"\xff\x00"])
def test_a_kind_that_no_event_may_have_is_the_default(kind: bytes) -> None:
    assert event(record(headers=[("ce_type", kind)])).event["kind"] == "kafka.record"


def test_a_tenant_that_no_event_may_have_is_left_out() -> None:
    assert event(record(headers=[("tenant_id", b"a b")])).event["tenant_id"] is None


def test_a_kind_that_the_trigger_does_not_take_is_passed_over() -> None:
    wanted = source(events=("order.created",))
    assert made(record(headers=[("ce_type", b"order.paid")]), wanted) is None
    assert made(record(b"no json", headers=[]), wanted) is None
    assert event(record(headers=[("ce_type", b"order.created")]), wanted)


def test_keys_that_are_no_text_and_times_that_are_none_are_said_otherwise() -> None:
    found = payload(event(record(key=b"\xff\x00", timestamp_ms=-1)))
    assert (found["key"], found["timestamp"]) == ({"base64": "/wA="}, None)
    assert payload(event(record(key=None)))["key"] is None
    assert payload(event(record(timestamp_ms=2**62)))["timestamp"] is None


# ---------------------------------------------------------------------- values
def test_json_is_kept_as_it_was_written() -> None:
    text = b'{"big": 12345678901234567890123, "pi": 3.14000}'
    assert text.decode() in event(record(text)).event["provider_payload"]


def test_text_bytes_and_tombstones() -> None:
    text = event(record('naïve "x"'.encode()), source(format="text"))
    raw = event(record(b"\x00\xff"), source(format="bytes"))
    assert payload(text)["raw"] == 'naïve "x"'
    assert (payload(raw)["raw"], raw.event["raw_body"]) == (None, b"\x00\xff")
    for format_ in ("json", "text", "bytes"):
        assert payload(event(record(None), source(format=format_)))["raw"] is None


class Avro:
    def decode(self, value: bytes, /) -> Any:
        if value == b"bad":
            raise BadValue("schema 7 is not in the registry")
        return {"blob": b"\x01", "nested": [1.5, None]}


def test_avro_values_are_json_to_handlers() -> None:
    read = reader_of("avro", Avro())
    found = event_of(source(format="avro"), record(b"x"), read, AT_MS, BYTES_MAX)
    assert isinstance(found, SourceEvent)
    assert payload(found)["raw"] == {"blob": "AQ==", "nested": [1.5, None]}
    bad = event_of(source(format="avro"), record(b"bad"), read, AT_MS, BYTES_MAX)
    assert isinstance(bad, dict)
    assert bad["reason"] == "schema 7 is not in the registry"


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("value", "format_", "reason"),
    [
        (b"", "json", "the value is not JSON"),
        (b"{", "json", "the value is not JSON"),
        (b'"\xff"', "json", "the value "),
        (b'"\\ud800"', "json", "half of a surrogate pair"),
        (b"[" * 5_000 + b"]" * 5_000, "json", "nested too deeply"),
        (b"\xff", "text", "the value is not UTF-8 at byte 0"),
    ],
)
def test_a_value_that_is_not_of_the_format_is_kept_with_its_reason(
    value: bytes, format_: str, reason: str
) -> None:
    found = refused(record(value), source(format=format_))
    assert reason in found["reason"]
    assert (found["trigger_id"], found["oversized"]) == ("orders", False)
    assert (found["topic"], found["partition"], found["offset"]) == ("shop.orders", 3, 1_042)
    assert (found["raw"], found["key"]) == (value, b"order-7")


def test_what_is_too_large_is_kept_in_part_with_its_size_and_hash() -> None:
    frame = len(event(record(b'""')).event["provider_payload"]) - 2
    at_bound = b'"' + b"x" * (BYTES_MAX - frame - 2) + b'"'
    assert event(record(at_bound))
    found = refused(record(at_bound[:-1] + b'x"'))
    assert (found["oversized"], found["raw_size"]) == (True, len(at_bound) + 1)
    assert f"at most {BYTES_MAX} are taken" in found["reason"]
    huge = refused(record(b"\xff" * 100_000, key=b"k" * 2_000))
    assert (len(huge["raw"]), len(huge["key"] or b""), huge["raw_size"]) == (65_536, 1_024, 100_000)
    assert len(huge["raw_sha256"]) == 64


def test_headers_are_bounded() -> None:
    assert event(record(headers=[(f"h{n}", b"") for n in range(HEADERS_MAX)]))
    many = refused(record(headers=[(f"h{n}", b"") for n in range(HEADERS_MAX + 1)]))
    large = refused(record(headers=[("h", b"x" * HEADERS_BYTES_MAX)]))
    assert (many["oversized"], large["oversized"]) == (True, True)
    assert f"{HEADERS_MAX + 1} headers" in many["reason"]
