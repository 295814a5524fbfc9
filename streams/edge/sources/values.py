"""What a record's value is to a handler: JSON, text, bytes, or Avro by a schema registry.

| format | the payload's `raw` is | the event's `raw_body` is |
|---|---|---|
| `json` | the JSON as it was written | nothing |
| `text` | the text | nothing |
| `bytes` | null | the bytes |
| `avro` | the value as JSON: bytes in base64, times in RFC 3339, decimals as text | nothing |

A record without a value, a tombstone, has a `raw` of null in every format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from streams.core.stream_source import Format
from streams.edge.ingest.events import explain_json

__all__ = ["AvroValues", "BadValue", "ReadValue", "Value", "reader_of"]

_NULL = b"null"


class Value(NamedTuple):
    """A value as an event carries it: JSON text, and the bytes where JSON cannot say them."""

    json: bytes
    raw_body: bytes | None = None


class BadValue(Exception):  # noqa: N818 - a record's fault, on its way into quarantine
    """The value is not of the trigger's format; the message says why, without the value."""


class AvroValues(Protocol):
    """Decodes Confluent's wire format."""

    def decode(self, value: bytes, /) -> Any:  # noqa: ANN401 - whatever its schema says
        """Return the value.  Raises BadValue; BrokerError while the registry does not answer."""
        ...


ReadValue = Callable[[bytes], Value]
"""Reads a value that is there.  Raises BadValue, and what the registry raises in an outage."""


def reader_of(format_: Format, avro: AvroValues | None) -> ReadValue:
    """Return what reads values of a format; `avro` is needed for Avro alone."""
    match format_:
        case "json":
            return _read_json
        case "text":
            return _read_text
        case "bytes":
            return _read_bytes
        case "avro":
            assert avro is not None, "whoever starts an avro source has a registry"
            return _avro_reader(avro)


def _read_json(value: bytes) -> Value:
    try:
        msgspec.json.decode(value)
        value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(f"the value {explain_json(value, error)}") from error
    return Value(value)


def _read_text(value: bytes) -> Value:
    try:
        return Value(msgspec.json.encode(value.decode()))
    except UnicodeDecodeError as error:
        raise BadValue(f"the value is not UTF-8 at byte {error.start}") from error


def _read_bytes(value: bytes) -> Value:
    return Value(_NULL, value)


def _avro_reader(avro: AvroValues) -> ReadValue:
    def read(value: bytes) -> Value:
        decoded = avro.decode(value)
        try:
            return Value(msgspec.json.encode(decoded))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise BadValue(f"the value cannot be said in JSON: {error}") from error

    return read
