"""Compares two versions of the schemas: whether each reads what the other wrote.

The verdict on each schema is the `avro` library's, asked both ways.  It names no field under a
union, so the walk here finds the places; and it forbids more: a record or a field that was released
stays, since removing and adding is how a rename looks.

Source: Avro 1.12 specification, "Schema Resolution"; STYLE 2.13.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityType,
)
from avro.schema import parse as parse_with_avro

from schemas.load import Schema, SchemaSet
from schemas.shape import (
    NO_DEFAULT,
    Array,
    Enum,
    Map,
    Nullable,
    Primitive,
    RecordShape,
    Shape,
    describe,
)

BACKWARD = "backward"
FORWARD = "forward"


class Incompatibility(NamedTuple):
    """A reason why one version cannot read what another wrote.

    `direction` is `backward` (current reads released) or `forward` (released reads current);
    `place` is the field, such as `event.headers{}`, or empty for the whole record.
    """

    stem: str
    direction: str
    place: str
    reason: str

    def __str__(self) -> str:
        """One line that names file, field and reason."""
        field = f"field {self.place}: " if self.place else ""
        return f"{self.stem}.avsc, {self.direction}: {field}{self.reason}"


def compare(released: SchemaSet, current: SchemaSet) -> list[Incompatibility]:
    """Return why `current` and `released` cannot read each other's records; empty when they can."""
    found: list[Incompatibility] = []
    for stem, old in released.items():
        new = current.get(stem)
        if new is None:
            found.append(Incompatibility(stem, BACKWARD, "", "the released record has gone"))
        elif new.definition != old.definition:
            found += _check(BACKWARD, reader=new, writer=old)
            found += _check(FORWARD, reader=old, writer=new)
            found += [
                Incompatibility(stem, BACKWARD, place, "the released field has gone")
                for place in _gone(old.shape, new.shape, "")
            ]
    return found


def avro_can_read(reader: Schema, writer: Schema) -> bool:
    """Say whether `reader` reads all that `writer` may write, in the `avro` library's judgement."""
    result = ReaderWriterCompatibilityChecker().get_compatibility(
        parse_with_avro(json.dumps(reader.definition)),
        parse_with_avro(json.dumps(writer.definition)),
    )
    return result.compatibility is SchemaCompatibilityType.compatible


def _check(direction: str, *, reader: Schema, writer: Schema) -> list[Incompatibility]:
    found = [
        Incompatibility(reader.stem, direction, place, reason)
        for place, reason in _differences(reader.shape, writer.shape, "")
    ]
    if not found and not avro_can_read(reader, writer):
        found.append(Incompatibility(reader.stem, direction, "", "Avro cannot resolve the schemas"))
    return found


def _differences(reader: Shape, writer: Shape, place: str) -> Iterator[tuple[str, str]]:
    """Yield each place that `reader` cannot read from `writer`, and why."""
    match reader, writer:
        case Nullable(), Nullable():
            yield from _differences(reader.inner, writer.inner, place)
        case Nullable(), _:
            yield from _differences(reader.inner, writer, place)
        case Array(), Array():
            yield from _differences(reader.items, writer.items, f"{place}[]")
        case Map(), Map():
            yield from _differences(reader.values, writer.values, f"{place}{{}}")
        case Enum(), Enum() if reader.name == writer.name:
            unknown = sorted(set(writer.symbols) - set(reader.symbols))
            if unknown and reader.default is None:
                yield place, f"symbols unknown to the reader ({', '.join(unknown)}), and no default"
        case RecordShape(), RecordShape() if reader.name == writer.name:
            yield from _field_differences(reader, writer, place)
        case Primitive("long"), Primitive("int"):
            pass
        case Primitive(), Primitive() if reader.name == writer.name:
            pass
        case _:
            yield place, f"{describe(reader)} cannot read {describe(writer)}"


def _field_differences(
    reader: RecordShape, writer: RecordShape, place: str
) -> Iterator[tuple[str, str]]:
    written = {field.name: field for field in writer.fields}
    for field in reader.fields:
        where = f"{place}.{field.name}" if place else field.name
        if field.name in written:
            yield from _differences(field.shape, written[field.name].shape, where)
        elif field.default is NO_DEFAULT:
            yield where, "the other version does not write it, and it has no default"


def _gone(released: Shape, current: Shape, place: str) -> Iterator[str]:
    """Yield the fields of `released` that `current` lacks, at any depth that both have."""
    match released, current:
        case (Nullable(), Nullable()):
            yield from _gone(released.inner, current.inner, place)
        case (Array(), Array()):
            yield from _gone(released.items, current.items, f"{place}[]")
        case (Map(), Map()):
            yield from _gone(released.values, current.values, f"{place}{{}}")
        case (RecordShape(), RecordShape()):
            fields = {field.name: field.shape for field in current.fields}
            for field in released.fields:
                where = f"{place}.{field.name}" if place else field.name
                if field.name in fields:
                    yield from _gone(field.shape, fields[field.name], where)
                else:
                    yield where
        case _:
            pass
