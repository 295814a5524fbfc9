"""Reading and expanding the schema files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import avro.schema
import fastavro
import pytest

from schemas import SchemaError, SchemaSet
from schemas.load import version_key

SCHEMAS = SchemaSet.load()


def write_record(folder: Path, stem: str, fields: list[dict[str, Any]], **more: Any) -> None:
    name = "".join(part.capitalize() for part in stem.split("_"))
    record = {"type": "record", "name": name, "namespace": "harn.streams", "doc": "A record."}
    text = json.dumps({**record, "fields": fields, **more})
    (folder / f"{stem}.avsc").write_text(text, encoding="utf-8")


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "doc": "A field.", **more}


@pytest.mark.parametrize("stem", SCHEMAS)
def test_both_libraries_parse_every_schema_and_agree_on_its_fingerprint(stem: str) -> None:
    schema = SCHEMAS[stem]
    with_avro = avro.schema.parse(json.dumps(schema.definition))
    assert with_avro.canonical_form == schema.canonical
    assert with_avro.fingerprint("CRC-64-AVRO") == schema.fingerprint
    fastavro.parse_schema(json.loads(json.dumps(schema.definition)))


@pytest.mark.parametrize("stem", SCHEMAS)
def test_every_record_and_field_is_documented_and_every_enum_has_a_default(stem: str) -> None:
    undocumented: list[str] = []

    def visit(kind: Any, path: str) -> None:
        match kind:
            case {"type": "record", "name": name, "fields": fields}:
                if not kind.get("doc", "").endswith("."):
                    undocumented.append(f"{path} ({name})")
                for entry in fields:
                    place = f"{path}.{entry['name']}"
                    if not entry.get("doc", "").endswith("."):
                        undocumented.append(place)
                    visit(entry["type"], place)
            case {"type": "enum", "symbols": symbols}:
                assert kind.get("default") in symbols, f"{path}: an enum without a default"
            case {"items": inner} | {"values": inner}:
                visit(inner, path)
            case [*branches]:
                for branch in branches:
                    visit(branch, path)

    visit(SCHEMAS[stem].definition, stem)
    assert undocumented == []


def test_names_and_fingerprints_are_unique() -> None:
    assert len({schema.full_name for schema in SCHEMAS.values()}) == len(SCHEMAS)
    assert len({schema.fingerprint for schema in SCHEMAS.values()}) == len(SCHEMAS)
    for schema in SCHEMAS.values():
        assert SCHEMAS.named(schema.full_name) is schema
        assert SCHEMAS.with_fingerprint(schema.fingerprint) is schema


def test_a_record_of_another_file_is_expanded_once_and_named_after_that(tmp_path: Path) -> None:
    write_record(tmp_path, "leaf_part", [field("number", "int")])
    write_record(tmp_path, "inner_part", [field("leaf", "harn.streams.LeafPart")])
    write_record(
        tmp_path,
        "outer_part",
        [
            field("first", ["null", "harn.streams.InnerPart"], default=None),
            field("more", {"type": "array", "items": "harn.streams.LeafPart"}),
        ],
    )
    outer = SchemaSet.load(tmp_path)["outer_part"].definition
    inner = outer["fields"][0]["type"][1]
    assert inner["fields"][0]["type"]["fields"] == [field("number", "int")]
    assert outer["fields"][1]["type"]["items"] == "harn.streams.LeafPart"


def test_a_changed_part_changes_the_fingerprint_of_what_holds_it(tmp_path: Path) -> None:
    write_record(tmp_path, "leaf_part", [field("number", "int")])
    write_record(tmp_path, "outer_part", [field("leaf", "harn.streams.LeafPart")])
    before = SchemaSet.load(tmp_path)["outer_part"].fingerprint
    write_record(tmp_path, "leaf_part", [field("number", "long")])
    assert SchemaSet.load(tmp_path)["outer_part"].fingerprint != before


def test_an_unknown_fingerprint_or_name_is_none() -> None:
    assert SCHEMAS.with_fingerprint(b"\0" * 8) is None
    assert SCHEMAS.named("harn.streams.NoSuchRecord") is None


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("double", "found 'double'"),
        ("harn.streams.Missing", "no file declares harn.streams.Missing"),
        (["null", "int", "string"], "found the union ['null', 'int', 'string']"),
        (["int", "null"], "found the union ['int', 'null']"),
        ({"type": "fixed", "name": "Hash", "size": 16}, "found 'fixed'"),
        ({"type": "record", "name": "Empty", "fields": []}, "the record Empty without fields"),
        ({"type": "array", "items": "float"}, "found 'float'"),
    ],
)
def test_what_the_codec_cannot_hold_is_refused_with_its_place(
    tmp_path: Path, kind: Any, found: str
) -> None:
    write_record(tmp_path, "some_thing", [field("place", kind)])
    with pytest.raises(SchemaError) as caught:
        SchemaSet.load(tmp_path)
    assert str(caught.value).startswith("some_thing.avsc: ")
    assert "place" in str(caught.value)
    assert found in str(caught.value)


def test_a_recursive_record_is_refused(tmp_path: Path) -> None:
    write_record(tmp_path, "tree_node", [field("next", ["null", "harn.streams.TreeNode"])])
    with pytest.raises(
        SchemaError, match=r"tree_node\.avsc: next: found 'harn\.streams\.TreeNode'"
    ):
        SchemaSet.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"other_thing\.avsc: expected JSON"),
        ('"string"', r"other_thing\.avsc: expected one Avro record"),
        ('{"type": "enum"}', r"other_thing\.avsc: expected one Avro record"),
        (
            '{"type": "record", "name": "Different", "namespace": "harn.streams", "fields": []}',
            r"declares harn\.streams\.Different; expected harn\.streams\.OtherThing",
        ),
        (
            '{"type": "record", "name": "OtherThing", "namespace": "elsewhere", "fields": []}',
            r"declares elsewhere\.OtherThing; expected harn\.streams\.OtherThing",
        ),
        (
            '{"type": "record", "name": "OtherThing", "namespace": "harn.streams"}',
            r"other_thing\.avsc: no valid Avro schema",
        ),
    ],
)
def test_a_file_that_is_no_record_of_ours_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "other_thing.avsc").write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match=message):
        SchemaSet.load(tmp_path)


def test_a_folder_without_schemas_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"no \.avsc files"):
        SchemaSet.load(tmp_path)


def test_releases_are_ordered_by_number_and_their_writers_are_found(tmp_path: Path) -> None:
    write_record(tmp_path, "some_thing", [field("number", "long")])
    for version, kind in (("0.10.0", "int"), ("0.9.0", "boolean")):
        (tmp_path / "released" / version).mkdir(parents=True)
        write_record(tmp_path / "released" / version, "some_thing", [field("number", kind)])
    schemas = SchemaSet.load(tmp_path)
    assert list(schemas.releases) == ["0.9.0", "0.10.0"]
    for release in schemas.releases.values():
        writer = release["some_thing"]
        assert schemas.with_fingerprint(writer.fingerprint) is writer


@pytest.mark.parametrize("version", ["1", "1.2", "1.2.3.4", "1.2.x", "v1.2.3", ""])
def test_a_malformed_release_is_refused(version: str) -> None:
    with pytest.raises(SchemaError, match=r"expected <major>\.<minor>\.<patch>"):
        version_key(version)
