"""Hypothesis strategies made from schemas: any value that fits a shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from schemas.shape import NO_DEFAULT, Array, Enum, Map, Nullable, Primitive, RecordShape, Shape

# Surrogates have no UTF-8; sizes reach beyond one byte of length (64) in a few values only.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "bytes": st.binary(max_size=70),
    "string": TEXTS,
}


def values_of(shape: Shape) -> st.SearchStrategy[Any]:
    """Values of `shape`, every field of a record given."""
    match shape:
        case Primitive():
            return _PRIMITIVES[shape.name]
        case Nullable():
            return st.none() | values_of(shape.inner)
        case Enum():
            return st.sampled_from(shape.symbols)
        case Array():
            return st.lists(values_of(shape.items), max_size=3)
        case Map():
            return st.dictionaries(TEXTS, values_of(shape.values), max_size=4)
        case RecordShape():
            return st.fixed_dictionaries({f.name: values_of(f.shape) for f in shape.fields})


def reversed_maps(value: Any) -> Any:
    """An equal value whose mappings were built in the opposite order."""
    match value:
        case dict():
            return {key: reversed_maps(value[key]) for key in reversed(value)}
        case list():
            return [reversed_maps(item) for item in value]
        case _:
            return value


def example_of(shape: Shape, fill: Callable[[str], Any]) -> Any:
    """One small value of `shape`; `fill` gives the value of a primitive by its name."""
    match shape:
        case Primitive():
            return fill(shape.name)
        case Nullable():
            return example_of(shape.inner, fill)
        case Enum():
            return shape.symbols[-1]
        case Array():
            return [example_of(shape.items, fill)]
        case Map():
            return {"b": example_of(shape.values, fill), "a": example_of(shape.values, fill)}
        case RecordShape():
            return {f.name: example_of(f.shape, fill) for f in shape.fields}


def without_defaults(shape: RecordShape, value: dict[str, Any]) -> dict[str, Any]:
    """`value` without the fields of `shape` that have a default."""
    return {f.name: value[f.name] for f in shape.fields if f.default is NO_DEFAULT}
