"""Says where and why a value does not fit its schema: the slow half of a strict encoder.

It names types and fields, never the data, so that the message may be logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from schemas.binary.writing import INT_BITS
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


class Misfit(NamedTuple):
    """Where a value first leaves its schema; `path` is like `event.headers{}` or `attempts[3]`."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        """`path: expected …, found …`."""
        return f"{self.path or 'value'}: expected {self.expected}, found {self.found}"


def find_misfit(shape: Shape, value: object, path: str = "") -> Misfit | None:
    """Find the first place where `value` does not fit `shape`; None when it fits."""
    match shape:
        case Nullable():
            found = None if value is None else find_misfit(shape.inner, value, path)
            if found is not None and found.path == path:
                return found._replace(expected=f"{found.expected} or null")
            return found
        case Primitive():
            return _primitive(shape, value, path)
        case Enum():
            if isinstance(value, str) and value in shape.symbols:
                return None
            text = f"one of {', '.join(shape.symbols)}"
            return Misfit(path, text, "another text" if isinstance(value, str) else _kind(value))
        case Array():
            return _array(shape, value, path)
        case Map():
            return _map(shape, value, path)
        case RecordShape():
            return _record(shape, value, path)


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _primitive(shape: Primitive, value: object, path: str) -> Misfit | None:
    match shape.name:
        case "string":
            if not isinstance(value, str):
                return Misfit(path, "string", _kind(value))
            try:
                value.encode()
            except UnicodeEncodeError as error:
                return Misfit(path, "text", f"a lone surrogate at character {error.start}")
            return None
        case "int" | "long":
            bits = INT_BITS[shape.name]
            if type(value) is not int:
                return Misfit(path, shape.name, _kind(value))
            if not -(1 << bits) <= value < 1 << bits:
                return Misfit(path, shape.name, f"a number of more than {bits + 1} bits")
            return None
        case "bytes":
            return None if type(value) is bytes else Misfit(path, "bytes", _kind(value))
        case "boolean":
            return None if type(value) is bool else Misfit(path, "boolean", _kind(value))


def _array(shape: Array, value: object, path: str) -> Misfit | None:
    if not isinstance(value, list | tuple):
        return Misfit(path, describe(shape), _kind(value))
    for index, item in enumerate(cast("Sequence[object]", value)):
        found = find_misfit(shape.items, item, f"{path}[{index}]")
        if found is not None:
            return found
    return None


def _map(shape: Map, value: object, path: str) -> Misfit | None:
    if not isinstance(value, Mapping):
        return Misfit(path, describe(shape), _kind(value))
    for key, item in cast("Mapping[object, object]", value).items():
        # Keys may carry data: the path says only that it is one of them.
        found = _primitive(Primitive("string"), key, f"key of {path}")
        found = found or find_misfit(shape.values, item, f"{path}{{}}")
        if found is not None:
            return found
    return None


def _record(shape: RecordShape, value: object, path: str) -> Misfit | None:
    if not isinstance(value, Mapping):
        return Misfit(path, f"a mapping with the fields of {shape.name}", _kind(value))
    entries = cast("Mapping[Any, object]", value)
    names = {field.name for field in shape.fields}
    for name in entries:
        if name not in names:
            return Misfit(path, f"only the fields of {shape.name}", f"also {name!r}")
    for field in shape.fields:
        where = f"{path}.{field.name}" if path else field.name
        if field.name in entries:
            found = find_misfit(field.shape, entries[field.name], where)
            if found is not None:
                return found
        elif field.default is NO_DEFAULT:
            return Misfit(where, describe(field.shape), "no such field")
    return None
