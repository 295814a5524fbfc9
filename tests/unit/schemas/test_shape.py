"""Defaults and names of shapes."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.shape import NO_DEFAULT, SchemaError, describe, shape_of

ENUM = {"type": "enum", "name": "Colour", "symbols": ["red", "blue"], "default": "red"}
PART = {"type": "record", "name": "Part", "fields": [{"name": "raw", "type": "bytes"}]}


def one_field(kind: Any, **more: Any) -> Any:
    definition = {
        "type": "record",
        "name": "Whole",
        "fields": [{"name": "f", "type": kind, **more}],
    }
    return shape_of(definition, "whole.avsc").fields[0]


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("int", 0, 0),
        ("boolean", False, False),
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        (["null", "bytes"], None, None),
        (ENUM, "red", "red"),
        ({"type": "array", "items": "bytes"}, ["\u00fe"], [b"\xfe"]),
        ({"type": "map", "values": "bytes"}, {"k": "\u0000"}, {"k": b"\x00"}),
        (PART, {"raw": "A"}, {"raw": b"A"}),
    ],
)
def test_a_default_becomes_a_value_as_the_codec_takes_it(
    kind: Any, default: Any, value: Any
) -> None:
    assert one_field(kind, default=default).default == value


def test_no_default_differs_from_a_null_default() -> None:
    assert one_field(["null", "int"]).default is NO_DEFAULT
    assert one_field(["null", "int"], default=None).default is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("long", "long"),
        (["null", "string"], "string or null"),
        ({"type": "array", "items": PART}, "array of Part"),
        ({"type": "map", "values": ENUM}, "map of Colour"),
    ],
)
def test_describe_names_a_shape_as_people_read_it(kind: Any, text: str) -> None:
    assert describe(one_field(kind).shape) == text


def test_the_whole_must_be_a_record() -> None:
    with pytest.raises(SchemaError, match=r"whole\.avsc: expected a record, found 'enum'"):
        shape_of(ENUM, "whole.avsc")
