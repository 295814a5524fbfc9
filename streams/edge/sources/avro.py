"""Avro values of others, in Confluent's wire format: the schema is the writer's, whatever it is.

Unlike our own records, which resolve to the schemas of this release, a foreign value is taken as it
was written; logical types and references to other schemas are followed.

Source: Confluent Schema Registry, "Wire format"; Avro 1.12 specification.
"""

from __future__ import annotations

import io
from typing import Any

from fastavro import schemaless_reader

from schemas import SchemaError
from streams.edge.schema_registry import ForeignSchemas
from streams.edge.sources.values import BadValue

__all__ = ["RegistryAvro"]

_MARKER = b"\x00"
_FRAME = 5  # marker and id, bytes


class RegistryAvro:
    """Implements `AvroValues` over the registry at `url`.  Blocks while it asks for a schema."""

    def __init__(self, url: str) -> None:
        self._schemas = ForeignSchemas(url)

    def decode(self, value: bytes, /) -> Any:  # noqa: ANN401 - whatever its schema says
        """See `AvroValues.decode`."""
        if len(value) < _FRAME or value[:1] != _MARKER:
            found = value[:1].hex() or "nothing"
            raise BadValue(f"the value begins with {found}, expected 00 and the id of a schema")
        schema_id = int.from_bytes(value[1:_FRAME], "big")
        try:
            schema = self._schemas.parsed(schema_id)
        except SchemaError as error:
            raise BadValue(f"schema {schema_id} {error}") from error
        body = io.BytesIO(value)
        body.seek(_FRAME)
        try:
            decoded = schemaless_reader(body, schema, None)
        except Exception as error:  # a library's, over bytes that anybody may have written
            message = f"the value is none of schema {schema_id} ({type(error).__name__})"
            raise BadValue(message) from error
        left = len(value) - body.tell()
        if left:
            raise BadValue(f"the value has {left} bytes after its end by schema {schema_id}")
        return decoded
