"""Tables of a manifest read by declaration: one `Field` a key, so that a new key is one new entry.

A key is declared and read, or declared as known but not built in this release, or it is a mistake;
the last two are refused, the mistake with the nearest declared key.

Source: SEMANTICS 1.4, 1.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from streams.core.manifest_place import Place

__all__ = [
    "TEXT_CHARS_MAX",
    "Field",
    "Read",
    "given_fields",
    "read_choice",
    "read_integer",
    "read_json",
    "read_table",
    "read_text",
    "read_texts",
    "table_of",
]

Read = Callable[[object, Place], Any]
"""Takes what TOML gave and where it stands; returns the value to keep, noting what is wrong."""

TEXT_CHARS_MAX = 200
"""Ids, names and event kinds become row keys and topic keys: they stay short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key of a table.

    `read` is None for a key that is known and not built.  `default` is the value, as `read` returns
    it, of a key that is left out.  `missing` continues the key's name where a required one is.
    `alias` is the key's other spelling.
    """

    name: str
    alias: str | None = None
    read: Read | None = None
    required: bool = False
    default: Any = None
    missing: str = "is missing"


def read_table(given: Mapping[str, Any], fields: tuple[Field, ...], place: Place) -> dict[str, Any]:
    """Read a table; every declared and built key has a value in the result.

    Problems are noted in `place`; a value that could not be read is then its field's default.
    """
    declared = {field.name: field for field in fields}
    spelled = {field.alias: field for field in fields if field.alias is not None}
    for name in given:
        field = declared.get(name) or spelled.get(name)
        if field is None:
            place.field(name).refuse(_unknown(name, fields))
        elif field.read is None:
            place.field(name).refuse("is not built in this release: leave it out")
    values: dict[str, Any] = {}
    for field in fields:
        if field.read is None:
            continue
        name = field.name
        if field.alias is not None and field.alias in given:
            if name in given:
                place.field(field.alias).refuse(f"is {name!r} once more: leave one of them out")
            name = field.alias
        if name in given:
            values[field.name] = field.read(given[name], place.field(name))
            continue
        if field.required:
            place.field(field.name).refuse(field.missing)
        values[field.name] = field.default
    return values


def given_fields(values: Mapping[str, Any], fields: tuple[Field, ...]) -> dict[str, Any]:
    """Return the values that say something: those that are not their field's default.

    A definition is hashed in this form, so that a key which a later release adds, and writing a
    default out, leave the hash as it is.
    """
    return {
        field.name: values[field.name]
        for field in fields
        if field.read is not None and values[field.name] != field.default
    }


def _unknown(name: str, fields: tuple[Field, ...]) -> str:
    built = [field.name for field in fields if field.read is not None]
    near = get_close_matches(name.replace("-", "_"), [field.name for field in fields], n=1)
    if near:
        return f"is not a key here; did you mean {near[0]!r}?"
    return f"is not a key here; known are {', '.join(built)}"


def table_of(value: object, place: Place) -> Mapping[str, Any] | None:
    """Return a table, or None with the problem noted."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    place.expected(value, "a table")
    return None


def read_text(value: object, place: Place) -> str:
    """Take a text that is not blank, has no control characters and is at most 200 characters."""
    if not isinstance(value, str):
        place.expected(value, "text")
        return ""
    if not value.strip():
        place.refuse("is empty")
    elif value != value.strip():
        place.expected(value, "text without spaces at its ends")
    elif not value.isprintable():
        place.expected(value, "text without control characters")
    elif len(value) > TEXT_CHARS_MAX:
        place.expected(value, f"at most {TEXT_CHARS_MAX} characters, not {len(value)}")
    return value


def read_texts(value: object, place: Place) -> list[str]:
    """Take a list of texts as `read_text` takes them, none twice."""
    if not isinstance(value, list):
        place.expected(value, "a list of texts")
        return []
    texts: list[str] = []
    for index, each in enumerate(cast("list[object]", value)):
        text = read_text(each, place.field(index))
        if text in texts:
            place.field(index).refuse(f"is {text!r}, which stands in the list already")
        texts.append(text)
    return texts


def read_integer(low: int, high: int) -> Read:
    """Return what takes whole numbers from `low` to `high`, both included."""

    def read(value: object, place: Place) -> int:
        if type(value) is not int or not low <= value <= high:
            place.expected(value, f"a whole number >= {low} and <= {high}")
            return low
        return value

    return read


def read_choice(*choices: str) -> Read:
    """Return what takes one of `choices`, exactly as spelled."""

    def read(value: object, place: Place) -> str:
        if not isinstance(value, str) or value not in choices:
            place.expected(value, "one of " + ", ".join(choices))
            return choices[0]
        return value

    return read


def read_json(value: object, place: Place) -> object:
    """Take any value that JSON can say: no dates, no NaN."""
    match value:
        case bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list():
            entries = cast("list[object]", value)
            return [read_json(each, place.field(index)) for index, each in enumerate(entries)]
        case dict():
            table = cast("dict[str, object]", value)
            return {name: read_json(each, place.field(name)) for name, each in table.items()}
        case _:
            place.expected(value, "text, a number, true, false, a list or a table")
            return None
