"""Framing, strictness and versions of the codec, over every schema of the application."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import Schema, SchemaSet
from schemas.release import release
from streams.codec import Codec, DecodeError, EncodeError
from tests.support.avro_values import example_of, reversed_maps, values_of, without_defaults
from tests.support.schema_folder import copied_schemas, field, unchanged

SCHEMAS = SchemaSet.load()
CODEC = Codec(SCHEMAS)
FILL = {"boolean": True, "int": 3, "long": 1_700_000_000_000, "bytes": b"\x00\xff", "string": "é"}


class Ids:
    """A registry's knowledge: ids from 100, in the order of stems, and schemas of other writers."""

    def __init__(self, others: dict[int, Schema] | None = None) -> None:
        self._ids = {stem: 100 + index for index, stem in enumerate(SCHEMAS)}
        self._writers = {self._ids[stem]: schema for stem, schema in SCHEMAS.items()}
        self._writers |= others or {}
        self.asked: list[int] = []

    def id_of(self, stem: str, /) -> int:
        return self._ids[stem]

    def writer(self, schema_id: int, /) -> Schema | None:
        self.asked.append(schema_id)
        return self._writers.get(schema_id)


def example(stem: str) -> dict[str, Any]:
    return example_of(SCHEMAS[stem].shape, FILL.__getitem__)


@st.composite
def records(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    stem = draw(st.sampled_from(sorted(SCHEMAS)))
    return stem, draw(values_of(SCHEMAS[stem].shape))


@given(records())
@settings(max_examples=300)
def test_every_record_comes_back_equal_and_with_its_schema(record: Any) -> None:
    stem, value = record
    assert CODEC.decode(CODEC.encode(stem, value)) == (stem, value)


@given(records())
def test_the_same_value_gives_the_same_bytes_whatever_order_it_was_built_in(record: Any) -> None:
    stem, value = record
    assert CODEC.encode(stem, reversed_maps(value)) == CODEC.encode(stem, value)


@pytest.mark.parametrize("stem", SCHEMAS)
def test_each_schema_round_trips_with_every_field_and_with_defaults_only(stem: str) -> None:
    value = example(stem)
    assert CODEC.decode(CODEC.encode(stem, value)) == (stem, value)
    least = without_defaults(SCHEMAS[stem].shape, value)
    decoded = CODEC.decode(CODEC.encoder(stem)(least))[1]
    assert decoded.keys() == value.keys()
    assert {name: decoded[name] for name in least} == least


def test_a_single_object_frame_is_marker_and_little_endian_fingerprint() -> None:
    data = CODEC.encode("tick", {"due_ms": 1})
    assert data == b"\xc3\x01" + SCHEMAS["tick"].fingerprint + b"\x02"


def test_a_confluent_frame_is_zero_and_big_endian_id() -> None:
    ids = Ids()
    codec = Codec(SCHEMAS, ids)
    data = codec.encode("tick", {"due_ms": 1})
    assert data == struct.pack(">bI", 0, ids.id_of("tick")) + b"\x02"
    assert codec.decode(data) == ("tick", {"due_ms": 1})


def test_with_a_registry_both_frames_are_read() -> None:
    assert Codec(SCHEMAS, Ids()).decode(CODEC.encode("tick", {"due_ms": 5}))[1] == {"due_ms": 5}


def test_an_id_is_looked_up_once() -> None:
    ids = Ids()
    codec = Codec(SCHEMAS, ids)
    data = codec.encode("tick", {"due_ms": 1})
    for _ in range(3):
        codec.decode(data)
    assert ids.asked == [ids.id_of("tick")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "too_short"),
        (b"\xc3", "too_short"),
        (b"\xc3\x01", "too_short"),
        (b"\xc3\x01" + b"x" * 7, "too_short"),
        (b"\x00", "too_short"),
        (b"\x00\x00\x00\x01", "too_short"),
        (b"{}", "unknown_frame"),
        (b"\xc3\x02" + b"x" * 20, "unknown_frame"),
        (b"\xc3\x01" + b"x" * 8, "unknown_schema"),
        (b"\x00\x00\x00\x00\x07", "unknown_schema"),
        (b"\xc3\x01" + SCHEMAS["tick"].fingerprint, "corrupt"),
        (b"\xc3\x01" + SCHEMAS["tick"].fingerprint + b"\x80" * 11, "corrupt"),
        (b"\xc3\x01" + SCHEMAS["tick"].fingerprint + b"\x02\x02", "trailing_bytes"),
    ],
)
def test_each_kind_of_bad_data_has_its_code(data: bytes, code: str) -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(data)
    assert caught.value.code == code
    assert str(caught.value) == f"{code}: {caught.value.reason}"


def test_an_id_that_the_registry_does_not_have_is_unknown() -> None:
    with pytest.raises(DecodeError, match=r"unknown_schema: registry id 7: no release"):
        Codec(SCHEMAS, Ids()).decode(b"\x00\x00\x00\x00\x07\x02")


def test_an_unknown_schema_is_asked_for_again() -> None:
    ids = Ids()
    codec = Codec(SCHEMAS, ids)
    for _ in range(2):
        with pytest.raises(DecodeError):
            codec.decode(b"\x00\x00\x00\x00\x07\x02")
    assert ids.asked == [7, 7]


def test_reasons_name_the_place_and_never_the_data() -> None:
    secret = "s3cret-value"
    value = {**example("event_ingested"), "trigger_id": secret}
    whole = CODEC.encode("event_ingested", value)
    spoiled = [whole[:-1], whole + secret.encode(), whole.replace("é".encode(), b"\xff\xff")]
    for data in spoiled:
        with pytest.raises(DecodeError, match="event_ingested: ") as caught:
            CODEC.decode(data)
        assert secret not in caught.value.reason
        assert secret not in repr(caught.value)


@given(records(), st.data())
def test_a_cut_record_is_never_taken_for_a_whole_one(record: Any, data: st.DataObject) -> None:
    whole = CODEC.encode(*record)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DecodeError):
        CODEC.decode(whole[:cut])


@given(records(), st.binary(min_size=1, max_size=20))
def test_bytes_after_a_record_are_refused(record: Any, more: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(CODEC.encode(*record) + more)
    assert caught.value.code == "trailing_bytes"


@given(st.sampled_from(sorted(SCHEMAS)), st.binary(max_size=300), st.sampled_from([0, 2, 10]))
def test_garbage_raises_decode_errors_only(stem: str, garbage: bytes, kept: int) -> None:
    frame = b"\xc3\x01" + SCHEMAS[stem].fingerprint
    try:
        CODEC.decode(frame[:kept] + garbage)
    except DecodeError:
        return


@given(records(), st.data())
def test_a_flipped_bit_is_detected_or_gives_another_value(record: Any, data: st.DataObject) -> None:
    whole = CODEC.encode(*record)
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    try:
        decoded = CODEC.decode(bytes(flipped))
    except DecodeError:
        return
    assert decoded != record


def test_a_value_that_does_not_fit_names_schema_field_and_types() -> None:
    value = example("event_ingested")
    value["event"]["headers"] = {"a": 5}
    with pytest.raises(EncodeError) as caught:
        CODEC.encode("event_ingested", value)
    assert str(caught.value) == "event_ingested: event.headers{}: expected string, found int"


@pytest.mark.parametrize("stem", SCHEMAS)
def test_unknown_and_missing_fields_are_refused_in_every_schema(stem: str) -> None:
    value = example(stem)
    with pytest.raises(EncodeError, match=f"^{stem}: value: expected only the fields of"):
        CODEC.encode(stem, {**value, "no_such_field": 1})
    name = next(iter(without_defaults(SCHEMAS[stem].shape, value)))
    del value[name]
    with pytest.raises(EncodeError, match=f"^{stem}: {name}: expected .*, found no such field"):
        CODEC.encode(stem, value)


def test_an_unknown_schema_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no_such_record"):
        CODEC.encode("no_such_record", {})


def add_fields(definition: dict[str, Any]) -> None:
    definition["fields"].insert(
        0, {"name": "added", "type": "string", "doc": "New.", "default": "as before"}
    )
    state = field(definition, "signature_state")
    state["type"]["symbols"] = ["failed", "unsigned", "revoked", "verified"]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> SchemaSet:
    """The next release's schemas: an event has a new field, and its enum new symbols."""
    folder = tmp_path_factory.mktemp("newer")
    copied_schemas(folder, "tick", unchanged)
    release("0.0.1", folder=folder)
    return copied_schemas(folder, "trigger_event", add_fields)


@given(value=values_of(SCHEMAS["event_ingested"].shape))
def test_what_a_release_wrote_is_read_as_the_current_record(
    value: dict[str, Any], newer: SchemaSet
) -> None:
    expected = {**value, "event": {**value["event"], "added": "as before"}}
    data = CODEC.encode("event_ingested", value)
    assert Codec(newer).decode(data) == ("event_ingested", expected)


def test_a_newer_writer_is_read_through_the_registry(newer: SchemaSet) -> None:
    older_reader = Codec(SCHEMAS, Ids(others={7: newer["event_ingested"]}))
    value = example("event_ingested")
    new_value = {**value, "event": {**value["event"], "added": "x", "signature_state": "revoked"}}
    body = Codec(newer).encode("event_ingested", new_value)[10:]
    stem, read = older_reader.decode(b"\x00\x00\x00\x00\x07" + body)
    # `revoked` is unknown to the older reader, which sees the enum's default.
    expected = {**value, "event": {**value["event"], "signature_state": "unsigned"}}
    assert (stem, read) == ("event_ingested", expected)


def test_a_newer_writer_without_a_registry_is_an_unknown_schema(newer: SchemaSet) -> None:
    value = example("event_ingested")
    value["event"]["added"] = "x"
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(Codec(newer).encode("event_ingested", value))
    assert caught.value.code == "unknown_schema"


def test_an_older_record_is_read_as_strictly_as_a_current_one(newer: SchemaSet) -> None:
    data = CODEC.encode("event_ingested", example("event_ingested"))
    for spoiled, code in ((data[:-1], "corrupt"), (data + b"\x00", "trailing_bytes")):
        with pytest.raises(DecodeError) as caught:
            Codec(newer).decode(spoiled)
        assert caught.value.code == code


def test_a_record_that_this_release_dropped_is_an_unknown_schema(tmp_path: Path) -> None:
    copied_schemas(tmp_path, "tick", unchanged)
    release("0.0.1", folder=tmp_path)
    (tmp_path / "tick.avsc").unlink()
    with pytest.raises(DecodeError, match=r"unknown_schema: harn\.streams\.Tick: no such record"):
        Codec(SchemaSet.load(tmp_path)).decode(CODEC.encode("tick", {"due_ms": 1}))


def test_what_is_no_record_of_a_schema_is_none() -> None:
    tick = CODEC.encode("tick", {"due_ms": 1})
    assert CODEC.decode_as("tick", tick) == {"due_ms": 1}
    for data in (None, b"", b"junk", tick[:-1], tick + b"x"):
        assert CODEC.decode_as("tick", data) is None
    assert CODEC.decode_as("invoke", tick) is None
