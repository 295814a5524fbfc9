"""The compiled encoding: what fits, what is refused and where, and agreement with fastavro."""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum, StrEnum
from io import BytesIO
from types import MappingProxyType
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.binary import READ_ERRORS, WRITE_ERRORS, compile_read, compile_write, find_misfit
from schemas.binary.reading import TIMES_MAX, times_kept
from schemas.binary.writing import NUMBERS_MAX, numbers_kept, varint
from schemas.shape import RecordShape, shape_of
from tests.support.avro_values import reversed_maps, values_of


def nullable(kind: Any) -> list[Any]:
    return ["null", kind]


ENUM = {"type": "enum", "name": "Colour", "symbols": ["red", "blue"], "default": "red"}
PART = {
    "type": "record",
    "name": "Part",
    "fields": [{"name": "label", "type": "string"}, {"name": "size", "type": "int"}],
}
EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "namespace": "harn.streams",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "data", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "colour", "type": ENUM},
        {"name": "part", "type": PART},
        {"name": "list", "type": {"type": "array", "items": "Part"}},
        {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "no_flag", "type": nullable("boolean")},
        {"name": "no_small", "type": nullable("int")},
        {"name": "no_large", "type": nullable("long")},
        {"name": "no_data", "type": nullable("bytes")},
        {"name": "no_text", "type": nullable("string")},
        {"name": "no_colour", "type": nullable("Colour")},
        {"name": "no_part", "type": nullable("Part")},
        {"name": "no_list", "type": nullable({"type": "array", "items": nullable("string")})},
        {"name": "no_map", "type": nullable({"type": "map", "values": nullable("Part")})},
        {"name": "more", "type": "long", "default": 7},
        {"name": "none", "type": nullable("string"), "default": None},
    ],
}
SHAPE = shape_of(EVERYTHING, "everything.avsc")
PARSED = fastavro.parse_schema(EVERYTHING)
WRITE = compile_write(SHAPE)
READ = compile_read(SHAPE)
VALUES = values_of(SHAPE)

FILLED: dict[str, Any] = {
    "flag": True,
    "small": -5,
    "large": 1 << 40,
    "data": b"\x00\xff",
    "text": "grün",
    "colour": "blue",
    "part": {"label": "a", "size": 1},
    "list": [{"label": "b", "size": 2}],
    "map": {"z": [1], "a": []},
    "no_flag": False,
    "no_small": 70,
    "no_large": -(1 << 50),
    "no_data": b"",
    "no_text": "",
    "no_colour": "red",
    "no_part": {"label": "c", "size": 3},
    "no_list": ["x", None],
    "no_map": {"k": None},
    "more": 8,
    "none": "some",
}


def sorted_maps(value: Any) -> Any:
    match value:
        case dict():
            return {key: sorted_maps(value[key]) for key in sorted(value)}
        case list():
            return [sorted_maps(item) for item in value]
        case _:
            return value


def fastavro_bytes(value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, PARSED, sorted_maps(value))
    return out.getvalue()


@given(VALUES)
def test_bytes_are_fastavro_s_and_read_back_equal(value: dict[str, Any]) -> None:
    data = WRITE(value)
    assert data == fastavro_bytes(value)
    assert READ(data, 0) == (value, len(data))
    assert READ(b"frame" + data, 5) == (value, 5 + len(data))


@given(VALUES)
def test_equal_values_give_equal_bytes(value: dict[str, Any]) -> None:
    assert WRITE(reversed_maps(value)) == WRITE(value)


@given(st.integers(0, 2**64 - 1))
def test_varint_is_base_128_lowest_group_first(number: int) -> None:
    data = varint(number)
    assert sum((byte & 127) << 7 * index for index, byte in enumerate(data)) == number
    assert [byte > 127 for byte in data] == [True] * (len(data) - 1) + [False]


def test_numbers_are_kept_up_to_a_bound_and_written_alike_before_and_after() -> None:
    numbers = [sign * (5_000 + number) for number in range(NUMBERS_MAX) for sign in (1, -1)]
    for _ in range(2):
        for number in numbers:
            value = {**FILLED, "large": number, "no_large": number, "small": number}
            data = WRITE(value)
            assert READ(data, 0)[0] == value
            assert numbers_kept() <= NUMBERS_MAX
    assert data == fastavro_bytes(value)


def test_times_are_kept_up_to_a_bound_and_read_alike_before_and_after() -> None:
    now_ms = 1_760_000_000_000
    for _ in range(2):
        for number in range(TIMES_MAX + 1):
            for large in (now_ms + number, -now_ms - number):
                value = {**FILLED, "large": large, "no_large": large // 2**20}
                assert READ(fastavro_bytes(value), 0)[0] == value
            assert times_kept() <= TIMES_MAX


def test_a_number_that_ends_sooner_is_none_that_begins_alike() -> None:
    longer, shorter = 2**40 + 3, 3  # the first groups of both are equal
    for large in (longer, shorter, 2**33 + 3, longer, shorter):
        value = {**FILLED, "large": large}
        assert READ(fastavro_bytes(value), 0)[0] == value


@pytest.mark.parametrize("size", [0, 63, 64, 4095, 4096, 8191, 8192, 70_000])
def test_lengths_on_both_sides_of_every_boundary(size: int) -> None:
    value = {**FILLED, "text": "x" * size, "no_text": "y" * size, "data": b"z" * size}
    value |= {"no_data": b"w" * size, "no_list": [None] * size, "list": [FILLED["part"]] * size}
    assert READ(WRITE(value), 0)[0] == value
    assert WRITE(value) == fastavro_bytes(value)


def test_missing_fields_with_defaults_are_filled_and_the_value_is_left_alone() -> None:
    given_value = {name: FILLED[name] for name in FILLED if name not in {"more", "none"}}
    before = dict(given_value)
    assert READ(WRITE(given_value), 0)[0] == {**given_value, "more": 7, "none": None}
    assert given_value == before


class Tint(StrEnum):
    BLUE = "blue"


def test_lookalikes_with_the_same_meaning_are_taken() -> None:
    value = {
        **FILLED,
        "colour": Tint.BLUE,
        "list": tuple(FILLED["list"]),
        "map": OrderedDict(FILLED["map"]),
        "part": MappingProxyType(FILLED["part"]),
    }
    assert WRITE(value) == WRITE(FILLED)
    assert find_misfit(SHAPE, value) is None


class Level(IntEnum):
    HIGH = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flag": 1}, "flag: expected boolean, found int"),
        ({"flag": None}, "flag: expected boolean, found null"),
        ({"no_flag": 0}, "no_flag: expected boolean or null, found int"),
        ({"small": True}, "small: expected int, found bool"),
        ({"small": 1.0}, "small: expected int, found float"),
        ({"small": "1"}, "small: expected int, found str"),
        ({"small": Level.HIGH}, "small: expected int, found Level"),
        ({"small": 2**31}, "small: expected int, found a number of more than 32 bits"),
        ({"small": -(2**31) - 1}, "small: expected int, found a number of more than 32 bits"),
        ({"large": 2**63}, "large: expected long, found a number of more than 64 bits"),
        (
            {"no_small": 2**40},
            "no_small: expected int or null, found a number of more than 32 bits",
        ),
        ({"data": "text"}, "data: expected bytes, found str"),
        ({"data": bytearray(b"x")}, "data: expected bytes, found bytearray"),
        ({"text": b"bytes"}, "text: expected string, found bytes"),
        ({"text": 5}, "text: expected string, found int"),
        ({"text": "a\ud800"}, "text: expected text, found a lone surrogate at character 1"),
        ({"no_text": 5}, "no_text: expected string or null, found int"),
        ({"colour": "green"}, "colour: expected one of red, blue, found another text"),
        ({"colour": None}, "colour: expected one of red, blue, found null"),
        ({"colour": []}, "colour: expected one of red, blue, found list"),
        ({"part": None}, "part: expected a mapping with the fields of Part, found null"),
        ({"part": "ab"}, "part: expected a mapping with the fields of Part, found str"),
        (
            {"part": ["label", "size"]},
            "part: expected a mapping with the fields of Part, found list",
        ),
        ({"part": {"label": "a"}}, "part.size: expected int, found no such field"),
        (
            {"part": {"label": "a", "size": 1, "x": 2}},
            "part: expected only the fields of Part, found also 'x'",
        ),
        (
            {"part": {"label": "a", "x": 2}},
            "part: expected only the fields of Part, found also 'x'",
        ),
        ({"list": [{"label": "a", "size": None}]}, "list[0].size: expected int, found null"),
        ({"list": {}}, "list: expected array of Part, found dict"),
        ({"list": None}, "list: expected array of Part, found null"),
        ({"list": "ab"}, "list: expected array of Part, found str"),
        ({"map": []}, "map: expected map of array of long, found list"),
        ({"map": None}, "map: expected map of array of long, found null"),
        ({"map": {1: []}}, "key of map: expected string, found int"),
        ({"map": {"a": [], 1: []}}, "key of map: expected string, found int"),
        ({"map": {"a": ["x"]}}, "map{}[0]: expected long, found str"),
        ({"no_map": {"a": {"label": 1, "size": 1}}}, "no_map{}.label: expected string, found int"),
        ({"extra": 1}, "value: expected only the fields of Everything, found also 'extra'"),
    ],
)
def test_a_misfit_is_refused_and_named(change: dict[str, Any], message: str) -> None:
    value = {**FILLED, **change}
    assert str(find_misfit(SHAPE, value)) == message
    with pytest.raises(WRITE_ERRORS):
        WRITE(value)


@pytest.mark.parametrize("value", [None, [], "text", 3, list(FILLED), set(FILLED)])
def test_what_is_no_mapping_is_refused(value: Any) -> None:
    assert "expected a mapping" in str(find_misfit(SHAPE, value))
    with pytest.raises(WRITE_ERRORS):
        WRITE(value)


def test_an_extra_entry_in_place_of_a_defaulted_one_is_refused() -> None:
    value = {**FILLED, "extra": 1}
    del value["more"]
    assert "found also 'extra'" in str(find_misfit(SHAPE, value))
    with pytest.raises(WRITE_ERRORS):
        WRITE(value)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.binary()
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from(sorted(FILLED)), ANYTHING)
def test_the_writer_and_the_explanation_agree_on_what_fits(name: str, anything: Any) -> None:
    value = {**FILLED, name: anything}
    try:
        data = WRITE(value)
    except WRITE_ERRORS:
        assert find_misfit(SHAPE, value) is not None
    else:
        assert find_misfit(SHAPE, value) is None
        assert READ(data, 0)[0] == value


def body(**change: bytes) -> bytes:
    """FILLED, encoded, with the bytes of some fields replaced."""
    return b"".join(
        change[field.name]
        if field.name in change
        else compile_write(RecordShape("Alone", "", (field,)))({field.name: FILLED[field.name]})
        for field in SHAPE.fields
    )


def test_body_without_changes_is_the_encoding() -> None:
    assert body() == WRITE(FILLED)


@pytest.mark.parametrize(
    "change",
    [
        {"flag": b"\x02"},
        {"small": varint(1 << 32)},
        {"large": varint(1 << 64)},
        {"large": b"\x80" * 10 + b"\x01"},
        {"text": b"\x01"},  # length -1
        {"text": b"\x02\xff"},  # no UTF-8
        {"data": b"\x03"},  # length -2
        {"colour": b"\x04"},  # third of two symbols
        {"colour": b"\x01"},  # symbol -1
        {"no_text": b"\x04"},  # third of two branches
        {"no_text": b"\x01"},  # branch -1
        {"no_data": b"\x04"},
        {"list": varint(1 << 40)},  # more items than bytes
        {"list": b"\x01\x01"},  # a block of -1 items and -1 bytes
    ],
)
def test_garbage_in_a_field_is_refused(change: dict[str, bytes]) -> None:
    with pytest.raises(READ_ERRORS):
        READ(body(**change), 0)


def test_blocks_with_their_size_are_read_as_other_writers_write_them() -> None:
    item = b"\x02b\x04"
    sized = varint(1) + varint(len(item) << 1) + item + b"\x02" + item + b"\x00"
    value, end = READ(body(list=sized), 0)
    assert value["list"] == [{"label": "b", "size": 2}] * 2
    assert end == len(body(list=sized))


def test_numbers_longer_than_they_need_to_be_are_read() -> None:
    assert READ(body(small=b"\x89\x80\x00"), 0)[0] == {**FILLED, "small": -5}


@given(VALUES, st.data())
def test_a_cut_encoding_never_passes(value: dict[str, Any], data: st.DataObject) -> None:
    whole = WRITE(value)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        _value, end = READ(cut, 0)
    except READ_ERRORS:
        return
    assert end > len(cut)


@given(st.binary(max_size=200))
def test_garbage_raises_nothing_else(garbage: bytes) -> None:
    try:
        READ(garbage, 0)
    except READ_ERRORS:
        return
