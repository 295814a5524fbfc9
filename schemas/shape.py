"""What a schema says, as a typed tree: the form that the codec, the generators and the tests walk.

Only what our records use is allowed.  No floats, since two that compare equal may differ in bytes;
no unions but "nothing or this", since a value must say by itself which branch it is; no recursion
and no empty records, so that every item takes at least a byte and a corrupt count cannot exhaust
memory.

Source: Avro 1.12 specification, "Schema Declaration"; STYLE 2.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

PrimitiveName = Literal["boolean", "int", "long", "bytes", "string"]
PRIMITIVES: tuple[str, ...] = get_args(PrimitiveName)


class SchemaError(ValueError):
    """A schema is unusable; the message names file, place and what was expected."""


class NoDefault:
    """Stands for "this field has no default", since None is one."""


NO_DEFAULT = NoDefault()


@dataclass(frozen=True, slots=True)
class Primitive:
    """A value without parts."""

    name: PrimitiveName


@dataclass(frozen=True, slots=True)
class Nullable:
    """Null or the inner value: the Avro union `["null", inner]`."""

    inner: Shape


@dataclass(frozen=True, slots=True)
class Enum:
    """One of several symbols; a reader takes an unknown one for `default`."""

    name: str
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence of items of one shape."""

    items: Shape


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one shape by text key; written in key order."""

    values: Shape


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record; `default` is a value as the codec takes it, or `NO_DEFAULT`."""

    name: str
    shape: Shape
    doc: str
    default: Any


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Named fields, in the order in which they are written."""

    name: str
    doc: str
    fields: tuple[Field, ...]


Shape = Primitive | Nullable | Enum | Array | Map | RecordShape


def shape_of(definition: Mapping[str, Any], file: str) -> RecordShape:
    """Read a record's definition, fully expanded, into its shape.

    Raises: SchemaError that names `file`, the field and what is allowed there.
    """
    shape = _Reading(file).shape(definition, "")
    if not isinstance(shape, RecordShape):
        raise SchemaError(f"{file}: expected a record, found {definition.get('type')!r}")
    return shape


def describe(shape: Shape) -> str:
    """Name a shape as people read it, such as `array of AttemptEntry` or `string or null`."""
    match shape:
        case Primitive():
            return shape.name
        case Nullable():
            return f"{describe(shape.inner)} or null"
        case Array():
            return f"array of {describe(shape.items)}"
        case Map():
            return f"map of {describe(shape.values)}"
        case Enum() | RecordShape():
            return shape.name


class _Reading:
    """Reads one definition: remembers the names that it defined so far."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._named: dict[str, Shape] = {}

    def shape(self, kind: object, path: str) -> Shape:
        if isinstance(kind, str):
            return self._by_name(kind, path)
        if isinstance(kind, list):
            return self._nullable(cast("list[object]", kind), path)
        definition = cast("dict[str, Any]", kind)
        match definition.get("type"):
            case "record":
                return self._record(definition, path)
            case "enum":
                return self._enum(definition)
            case "array":
                return Array(self.shape(definition.get("items"), f"{path}[]"))
            case "map":
                return Map(self.shape(definition.get("values"), f"{path}{{}}"))
            case str(name) if name in PRIMITIVES:
                return Primitive(cast("PrimitiveName", name))
            case other:
                raise self._error(path, repr(other))

    def _by_name(self, name: str, path: str) -> Shape:
        if name in PRIMITIVES:
            return Primitive(cast("PrimitiveName", name))
        found = self._named.get(_short(name))
        if found is None:
            raise self._error(path, repr(name))
        return found

    def _nullable(self, branches: list[object], path: str) -> Shape:
        if len(branches) != 2 or branches[0] != "null" or isinstance(branches[1], list):
            raise self._error(path, f"the union {branches!r}")
        return Nullable(self.shape(branches[1], path))

    def _enum(self, definition: dict[str, Any]) -> Shape:
        name = _short(definition["name"])
        shape = Enum(name, tuple(definition["symbols"]), definition.get("default"))
        self._named[name] = shape
        return shape

    def _record(self, definition: dict[str, Any], path: str) -> Shape:
        name = _short(definition["name"])
        fields = tuple(self._field(entry, path) for entry in definition["fields"])
        if not fields:
            raise self._error(path, f"the record {name} without fields")
        self._named[name] = shape = RecordShape(name, str(definition.get("doc", "")), fields)
        return shape

    def _field(self, entry: dict[str, Any], path: str) -> Field:
        name = str(entry["name"])
        shape = self.shape(entry["type"], f"{path}.{name}" if path else name)
        default = _value(shape, entry["default"]) if "default" in entry else NO_DEFAULT
        return Field(name, shape, str(entry.get("doc", "")), default)

    def _error(self, path: str, found: str) -> SchemaError:
        return SchemaError(
            f"{self._file}: {path or 'record'}: found {found}; expected one of "
            f"{', '.join(PRIMITIVES)}, an enum, array, map or record with fields, "
            '["null", <type>], '
            "or the name of a record defined before"
        )


def _short(name: str) -> str:
    """Return a name without its namespace: there is only one."""
    return name.rpartition(".")[2]


def _value(shape: Shape, default: Any) -> Any:  # noqa: ANN401 - any JSON in, any value out
    """Turn a default as JSON holds it into a value; bytes are written there as Latin-1 text."""
    match shape:
        case Primitive("bytes"):
            return str(default).encode("latin-1")
        case Array():
            return [_value(shape.items, item) for item in default]
        case Map():
            return {key: _value(shape.values, item) for key, item in default.items()}
        case RecordShape():
            return {field.name: _value(field.shape, default[field.name]) for field in shape.fields}
        case _:
            return default
