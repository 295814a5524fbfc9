"""Avro at the edge: one framed value to bytes and back, the same bytes for the same value.

A value is framed as Avro single-object encoding (`C3 01`, the writer schema's CRC-64-AVRO fingerprint, little-endian, body),
or, when a schema registry is configured, in Confluent's wire format (`00`, its id, big-endian, body).  Decoding takes both, and
resolves what older releases wrote to the current schema.

Source: Avro 1.12 specification, "Single-object encoding"; STYLE 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Protocol

from fastavro import schemaless_reader, schemaless_writer

from schemas import Schema, SchemaSet

SINGLE_OBJECT = b"\xc3\x01"
CONFLUENT = b"\x00"
_SINGLE_OBJECT_FRAME = 10  # marker and fingerprint, bytes
_CONFLUENT_FRAME = 5  # marker and id, bytes

Encoder = Callable[[Mapping[str, Any]], bytes]


class EncodeError(ValueError):
    """A value does not fit its schema: a bug of whoever built it.  Names schema, field, expected and found type."""


class DecodeError(ValueError):
    """Bytes that are no record of ours.

    `code` is stable: `too_short`, `unknown_frame`, `unknown_schema`, `corrupt` or `trailing_bytes`; `reason` says what was
    expected and found, never the data itself.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class RegistryIds(Protocol):
    """What a schema registry knows of our schemas."""

    def id_of(self, stem: str, /) -> int:
        """The registry's id of the current schema `stem`."""
        ...

    def writer(self, schema_id: int, /) -> Schema | None:
        """The schema registered under that id, or None when the registry has none; may ask it and wait."""
        ...


class Codec:
    """Encodes and decodes every record of the application; safe to share between threads."""

    def __init__(
        self, schemas: SchemaSet | None = None, registry: RegistryIds | None = None
    ) -> None:
        self._schemas = SchemaSet.load() if schemas is None else schemas
        self._registry = registry
        self._encoders: dict[str, Encoder] = {}
        self._readers: dict[bytes, tuple[str, Callable[[BytesIO], dict[str, Any]]]] = {}

    @property
    def schemas(self) -> SchemaSet:
        """The schemas it knows."""
        return self._schemas

    def encode(self, schema: str, value: Mapping[str, Any]) -> bytes:
        """Encode `value` as the record `schema` (a file stem, such as `event_ingested`), framed.

        Raises: EncodeError when the value does not fit; KeyError when there is no such schema.
        """
        encoder = self._encoders.get(schema)
        return (self.encoder(schema) if encoder is None else encoder)(value)

    def encoder(self, schema: str) -> Encoder:
        """`encode` bound to one schema: the form for hot paths."""
        found = self._encoders.get(schema)
        if found is None:
            found = self._encoders[schema] = self._make_encoder(self._schemas[schema])
        return found

    def _make_encoder(self, schema: Schema) -> Encoder:
        frame = self._frame(schema)
        parsed, stem = schema.parsed, schema.stem

        def encode(value: Mapping[str, Any]) -> bytes:
            out = BytesIO()
            out.write(frame)
            try:
                schemaless_writer(out, parsed, value, strict_allow_default=True)
            except (ValueError, TypeError, OverflowError, AttributeError) as error:
                raise EncodeError(f"{stem}: {error}") from error
            return out.getvalue()

        return encode

    def _frame(self, schema: Schema) -> bytes:
        if self._registry is None:
            return SINGLE_OBJECT + schema.fingerprint
        return CONFLUENT + self._registry.id_of(schema.stem).to_bytes(4, "big")

    def decode(self, data: bytes) -> tuple[str, dict[str, Any]]:
        """The schema's stem and the value of a framed record, resolved to the current schema.

        Raises: DecodeError; with a registry, also its own error when an unknown id cannot be looked up.
        """
        size = _CONFLUENT_FRAME if data[:1] == CONFLUENT else _SINGLE_OBJECT_FRAME
        frame = data[:size]
        stem, read = self._readers.get(frame) or self._make_reader(frame, len(data))
        body = BytesIO(data)
        body.seek(size)
        try:
            value = read(body)
        except Exception as error:
            raise DecodeError("corrupt", f"{stem}: {type(error).__name__}") from error
        if body.tell() != len(data):
            raise DecodeError(
                "trailing_bytes", f"{stem}: {len(data) - body.tell()} bytes after the record"
            )
        return stem, value

    def _make_reader(
        self, frame: bytes, size: int
    ) -> tuple[str, Callable[[BytesIO], dict[str, Any]]]:
        writer = self._writer(frame, size)
        reader = self._schemas.named(writer.full_name)
        if reader is None:
            raise DecodeError(
                "unknown_schema", f"{writer.full_name} is not a record of this release"
            )
        wrote, wanted = writer.parsed, reader.parsed
        if writer.canonical == reader.canonical:
            wanted = None

        def read(body: BytesIO) -> dict[str, Any]:
            return schemaless_reader(body, wrote, wanted)  # pyright: ignore

        self._readers[frame] = found = (reader.stem, read)
        return found

    def _writer(self, frame: bytes, size: int) -> Schema:
        if frame[:1] == CONFLUENT:
            if size < _CONFLUENT_FRAME:
                raise DecodeError("too_short", f"{size} bytes; a frame has {_CONFLUENT_FRAME}")
            schema_id = int.from_bytes(frame[1:], "big")
            if self._registry is None:
                raise DecodeError(
                    "unknown_schema",
                    f"registry id {schema_id}, and no schema registry is configured",
                )
            writer = self._registry.writer(schema_id)
            what = f"registry id {schema_id}"
        elif frame[:2] == SINGLE_OBJECT:
            if size < _SINGLE_OBJECT_FRAME:
                raise DecodeError("too_short", f"{size} bytes; a frame has {_SINGLE_OBJECT_FRAME}")
            writer = self._schemas.with_fingerprint(frame[2:])
            what = f"fingerprint {frame[2:].hex()}"
        elif size < 2:
            raise DecodeError("too_short", f"{size} bytes; a frame has {_SINGLE_OBJECT_FRAME}")
        else:
            raise DecodeError(
                "unknown_frame", f"begins with {frame[:2].hex()}; expected c301 or 00"
            )
        if writer is None:
            raise DecodeError("unknown_schema", f"{what} is of no known release")
        return writer
