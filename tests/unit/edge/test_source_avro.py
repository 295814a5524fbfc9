"""Avro values of others by a schema registry: any schema, and what cannot be read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from streams.edge.sources.avro import RegistryAvro
from streams.edge.sources.values import BadValue
from streams.errors import BrokerError
from tests.support.registry_server import Server

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "blob", "type": ["null", "bytes"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
VALUE = {"id": 7, "blob": b"\x01", "at": datetime(2026, 1, 1, tzinfo=UTC)}


def framed(value: Any, schema: Any, schema_id: int = 7) -> bytes:
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(schema, named_schemas={}), value)
    return b"\x00" + schema_id.to_bytes(4, "big") + body.getvalue()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


def registered(server: Server, schema: Any, schema_id: int = 7, **more: Any) -> RegistryAvro:
    server.answers[f"/schemas/ids/{schema_id}"] = (200, {"schema": json.dumps(schema), **more})
    return RegistryAvro(f"http://127.0.0.1:{server.port}")


def test_a_value_is_read_by_its_writers_schema_which_is_asked_for_once(server: Server) -> None:
    avro = registered(server, ORDER)
    assert avro.decode(framed(VALUE, ORDER)) == VALUE
    assert avro.decode(framed(VALUE, ORDER)) == VALUE
    assert len(server.asked) == 1


def test_a_value_need_not_be_a_record(server: Server) -> None:
    assert registered(server, "string").decode(framed("hello", "string")) == "hello"


def test_references_to_other_schemas_are_followed(server: Server) -> None:
    basket = {
        "type": "record",
        "name": "shop.Basket",
        "fields": [{"name": "orders", "type": {"type": "array", "items": "shop.Order"}}],
    }
    whole = json.loads(json.dumps(basket).replace('"shop.Order"', json.dumps(ORDER), 1))
    server.answers["/subjects/orders/versions/3"] = (
        200,
        {"subject": "orders", "version": 3, "id": 6, "schema": json.dumps(ORDER)},
    )
    reference = {"name": "shop.Order", "subject": "orders", "version": 3}
    avro = registered(server, basket, references=[reference])
    value = {"orders": [VALUE]}
    assert avro.decode(framed(value, whole)) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the value begins with nothing, expected 00"),
        (b"\x00\x00", "expected 00 and the id of a schema"),
        (b'{"json": 1}', "the value begins with 7b, expected 00"),
        (b"\x00\x00\x00\x00\x09rest", "schema 9 is not in the registry"),
        (framed(VALUE, ORDER)[:-3], "the value is none of schema 7"),
        (framed(VALUE, ORDER) + b"x", "the value has 1 bytes after its end by schema 7"),
    ],
)
def test_what_cannot_be_read_is_said(server: Server, value: bytes, reason: str) -> None:
    avro = registered(server, ORDER)
    with pytest.raises(BadValue) as refused:
        avro.decode(value)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": "{}", "schemaType": "PROTOBUF"}, "is of type PROTOBUF, expected AVRO"),
        ({"schema": '{"type": "record"}'}, "is no Avro schema that can be read"),
        ({"schema": '"shop.Missing"'}, "is no Avro schema that can be read"),
        ({"schema": "no json"}, "is no Avro schema that can be read"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_bad_value(
    server: Server, answer: dict[str, str], reason: str
) -> None:
    server.answers["/schemas/ids/7"] = (200, answer)
    avro = RegistryAvro(f"http://127.0.0.1:{server.port}")
    with pytest.raises(BadValue, match=reason):
        avro.decode(framed(VALUE, ORDER))


def test_a_registry_that_refuses_is_an_outage_and_says_nothing_about_the_value(
    server: Server,
) -> None:
    server.refusal = (403, {"error_code": 40301, "message": "no"})
    with pytest.raises(BrokerError):
        RegistryAvro(f"http://127.0.0.1:{server.port}").decode(framed(VALUE, ORDER))
