"""Avro at the edge: one framed value to bytes and back, the same bytes for the same value.

A value is framed as Avro single-object encoding (`C3 01`, the writer schema's CRC-64-AVRO
fingerprint in little-endian, body) or, when a schema registry is configured, in Confluent's wire
format (`00`, its id in big-endian, body).  Decoding takes both, and resolves what other releases
wrote to the current schema.

Invariants: equal values give equal bytes; `decode(encode(value)) == value`; bytes that are no
record raise `DecodeError` and nothing else.

Source: Avro 1.12 specification, "Single-object encoding"; STYLE 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Protocol

from fastavro import schemaless_reader
from fastavro.read import SchemaResolutionError

from schemas import Schema, SchemaError, SchemaSet
from schemas.binary import (
    READ_ERRORS,
    Read,
    compile_read,
    compile_write,
    find_misfit,
)

SINGLE_OBJECT = b"\xc3\x01"
CONFLUENT = b"\x00"
_SINGLE_OBJECT_FRAME = 10  # marker and fingerprint, bytes
_CONFLUENT_FRAME = 5  # marker and id, bytes

Encoder = Callable[[Mapping[str, Any]], bytes]


class EncodeError(ValueError):
    """A value does not fit its schema: a bug of whoever built it.

    The message names schema, field, expected and found type, and no data.
    """


class DecodeError(ValueError):
    """Bytes that are no record of ours.

    `code` is stable: `too_short`, `unknown_frame`, `unknown_schema`, `corrupt` or `trailing_bytes`.
    `reason` says what was expected and what was found, never the data itself.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class RegistryIds(Protocol):
    """What a schema registry knows of our schemas."""

    def id_of(self, stem: str, /) -> int:
        """Return the registry's id of the current schema `stem`."""
        ...

    def writer(self, schema_id: int, /) -> Schema | None:
        """Return the schema of that id, or None if there is none; may ask the registry and wait.

        Raises: SchemaError when there is one that cannot be read here; its own error in an outage.
        """
        ...


class Codec:
    """Encodes and decodes every record of the application; threads may share it."""

    def __init__(
        self, schemas: SchemaSet | None = None, registry: RegistryIds | None = None
    ) -> None:
        self.schemas = SchemaSet.load() if schemas is None else schemas
        self._registry = registry
        self._encoders: dict[str, Encoder] = {}
        self._readers: dict[bytes, _Reader] = {}

    def encode(self, schema: str, value: Mapping[str, Any]) -> bytes:
        """Encode `value` as a record of `schema` (a file stem, such as `event_ingested`), framed.

        A field with a default may be missing.  Raises: EncodeError when the value does not fit;
        KeyError when there is no such schema.
        """
        return (self._encoders.get(schema) or self.encoder(schema))(value)

    def encoder(self, schema: str) -> Encoder:
        """Return `encode` bound to one schema: the form for hot paths."""
        found = self._encoders.get(schema)
        if found is None:
            found = self._encoders[schema] = self._make_encoder(self.schemas[schema])
        return found

    def decode(self, data: bytes) -> tuple[str, dict[str, Any]]:
        """Decode a framed record: its schema's stem, and its value resolved to the current schema.

        Raises: DecodeError.  With a registry also the registry's own error, when an id that was not
        seen before cannot be looked up: that is an outage, and says nothing about the data.
        """
        size = _CONFLUENT_FRAME if data[:1] == CONFLUENT else _SINGLE_OBJECT_FRAME
        frame = data[:size]
        stem, read, resolve = self._readers.get(frame) or self._make_reader(frame)
        try:
            value, end = read(data, size)
        except READ_ERRORS as error:
            raise DecodeError("corrupt", f"{stem}: {_reason(error)}") from error
        if end != len(data):
            raise _wrong_end(stem, end - len(data))
        return stem, value if resolve is None else resolve(data)

    def decode_as(self, schema: str, data: bytes | None) -> dict[str, Any] | None:
        """Return the value of a record of `schema`; None for anything else, whatever it is.

        For who reads a topic that anybody may write to, and has no use for the rest.
        Raises: with a registry its own error, as `decode` does.
        """
        try:
            found, value = self.decode(data or b"")
        except DecodeError:
            return None
        return value if found == schema else None

    def _make_encoder(self, schema: Schema) -> Encoder:
        def refuse(value: object, error: Exception) -> None:
            misfit = find_misfit(schema.shape, value)
            if misfit is not None:
                raise EncodeError(f"{schema.stem}: {misfit}") from error

        return compile_write(schema.shape, self._frame(schema), refuse)

    def _frame(self, schema: Schema) -> bytes:
        if self._registry is None:
            return SINGLE_OBJECT + schema.fingerprint
        return CONFLUENT + self._registry.id_of(schema.stem).to_bytes(4, "big")

    def _make_reader(self, frame: bytes) -> _Reader:
        writer = self._writer(frame)
        reader = self.schemas.named(writer.full_name)
        if reader is None:
            raise DecodeError(
                "unknown_schema", f"{writer.full_name}: no such record in this release"
            )
        same = writer.canonical == reader.canonical
        resolve = None if same else _resolver(writer, reader, len(frame))
        found = self._readers[frame] = reader.stem, compile_read(writer.shape), resolve
        return found

    def _writer(self, frame: bytes) -> Schema:
        """Return the schema that the frame names; DecodeError when it names none that is known."""
        if frame[:1] == CONFLUENT:
            _check_size(frame, _CONFLUENT_FRAME)
            schema_id = int.from_bytes(frame[1:], "big")
            what = f"registry id {schema_id}"
            if self._registry is None:
                raise DecodeError("unknown_schema", f"{what}, but no registry is configured")
            try:
                writer = self._registry.writer(schema_id)
            except SchemaError as error:
                raise DecodeError("unknown_schema", f"{what}: {error}") from error
        elif frame[:2] == SINGLE_OBJECT:
            _check_size(frame, _SINGLE_OBJECT_FRAME)
            what = f"fingerprint {frame[2:].hex()}"
            writer = self.schemas.with_fingerprint(frame[2:])
        else:
            _check_size(frame, len(SINGLE_OBJECT))
            found = frame[:2].hex()
            raise DecodeError("unknown_frame", f"begins with {found}; expected c301 or 00")
        if writer is None:
            raise DecodeError("unknown_schema", f"{what}: no release known here wrote it")
        return writer


_Resolve = Callable[[bytes], dict[str, Any]]
_Reader = tuple[str, Read, _Resolve | None]  # stem, strict reader of what was written, resolution


def _resolver(writer: Schema, reader: Schema, start: int) -> _Resolve:
    """Return what reads a body of `writer`, known to be sound, as a value of `reader`."""

    def resolve(data: bytes) -> dict[str, Any]:
        body = BytesIO(data)
        body.seek(start)
        try:
            value: Any = schemaless_reader(body, writer.parsed, reader.parsed)
        except (SchemaResolutionError, ValueError) as error:
            reason = f"{reader.stem}: written with a schema that the current one cannot read"
            raise DecodeError("unknown_schema", reason) from error
        return value

    return resolve


def _check_size(frame: bytes, size: int) -> None:
    if len(frame) < size:
        raise DecodeError("too_short", f"{len(frame)} bytes; a frame has {size}")


def _wrong_end(stem: str, by: int) -> DecodeError:
    if by > 0:
        return DecodeError("corrupt", f"{stem}: ends {by} bytes early")
    return DecodeError("trailing_bytes", f"{stem}: {-by} bytes after the record")


def _reason(error: Exception) -> str:
    """Say what a reader met; a decoding error's own text would quote the data."""
    match error:
        case UnicodeDecodeError():
            return "a text that is not UTF-8"
        case IndexError():
            return "ends early, or an enum index beyond its symbols"
        case _:
            return str(error)
