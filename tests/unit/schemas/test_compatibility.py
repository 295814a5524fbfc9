"""The current schemas and the last release read each other; what breaks that is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import SchemaError, SchemaSet
from schemas.compatibility import avro_can_read, compare
from schemas.release import main, release
from streams.codec import Codec
from tests.support.avro_values import values_of
from tests.support.schema_folder import Change, copied_schemas, field, unchanged

CURRENT = SchemaSet.load()
RELEASES = CURRENT.releases
REMEDY = "if nobody has run that release yet: python -m schemas.release <version> --replace"


def test_there_is_a_release_to_compare_with() -> None:
    assert next(iter(RELEASES)) == "0.1.0"


@pytest.mark.parametrize("version", RELEASES)
def test_current_and_released_schemas_read_each_other(version: str) -> None:
    problems = "\n".join(str(problem) for problem in compare(RELEASES[version], CURRENT))
    assert problems == "", f"incompatible with {version} ({REMEDY}):\n{problems}"


@pytest.mark.parametrize("version", RELEASES)
def test_the_avro_library_agrees_in_both_directions(version: str) -> None:
    for stem, old in RELEASES[version].items():
        assert avro_can_read(CURRENT[stem], old), f"{stem}: backward ({REMEDY})"
        assert avro_can_read(old, CURRENT[stem]), f"{stem}: forward ({REMEDY})"


@st.composite
def released_records(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    version = draw(st.sampled_from(sorted(RELEASES)))
    stem = draw(st.sampled_from(sorted(RELEASES[version])))
    return version, stem, draw(values_of(RELEASES[version][stem].shape))


CODEC = Codec(CURRENT)
WRITERS = {version: Codec(schemas) for version, schemas in RELEASES.items()}


@given(released_records())
@settings(max_examples=200)
def test_bytes_written_by_a_release_are_read(record: tuple[str, str, dict[str, Any]]) -> None:
    version, stem, value = record
    read_as, read = CODEC.decode(WRITERS[version].encode(stem, value))
    assert read_as == stem
    assert {name: read[name] for name in value if isinstance(value[name], str | bytes | int)} == {
        name: item for name, item in value.items() if isinstance(item, str | bytes | int)
    }


def rename(old: str, new: str) -> Change:
    return lambda definition: field(definition, old).update(name=new)


def retype(name: str, kind: Any) -> Change:
    return lambda definition: field(definition, name).update(type=kind)


def remove(name: str) -> Change:
    return lambda definition: definition["fields"].remove(field(definition, name))


def add(**entry: Any) -> Change:
    return lambda definition: definition["fields"].append({"doc": "New.", **entry})


def drop_enum_default(name: str, symbol: str) -> Change:
    def change(definition: dict[str, Any]) -> None:
        kind = field(definition, name)["type"]
        del kind["default"]
        kind["symbols"].remove(symbol)

    return change


UNWRITTEN = "the other version does not write it, and it has no default"
GONE = "symbols unknown to the reader (skipped), and no default"


@pytest.mark.parametrize(
    ("stem", "change", "expected"),
    [
        (
            "stage_skip",
            rename("reason", "because"),
            [
                f"stage_skip.avsc, backward: field because: {UNWRITTEN}",
                f"stage_skip.avsc, forward: field reason: {UNWRITTEN}",
                "stage_skip.avsc, backward: field reason: the released field has gone",
            ],
        ),
        (
            "stage_skip",
            retype("offset", "string"),
            [
                "stage_skip.avsc, backward: field offset: string cannot read long",
                "stage_skip.avsc, forward: field offset: long cannot read string",
            ],
        ),
        (
            "stage_skip",
            retype("partition", "long"),
            ["stage_skip.avsc, forward: field partition: int cannot read long"],
        ),
        (
            "stage_skip",
            retype("reason", ["null", "string"]),
            ["stage_skip.avsc, forward: field reason: string cannot read string or null"],
        ),
        (
            "stage_skip",
            add(name="ticket", type="string"),
            [f"stage_skip.avsc, backward: field ticket: {UNWRITTEN}"],
        ),
        (
            "record_quarantined",
            remove("kind"),
            ["record_quarantined.avsc, backward: field kind: the released field has gone"],
        ),
        (
            "record_quarantined",
            drop_enum_default("code", "skipped"),
            [f"record_quarantined.avsc, backward: field code: {GONE}"],
        ),
    ],
)
def test_an_incompatible_change_is_named_with_file_and_field(
    tmp_path: Path, stem: str, change: Change, expected: list[str]
) -> None:
    changed = copied_schemas(tmp_path, stem, change)
    assert [str(problem) for problem in compare(CURRENT, changed)] == expected


def test_a_change_in_a_shared_part_is_named_in_every_record_that_holds_it(tmp_path: Path) -> None:
    changed = copied_schemas(tmp_path, "trigger_event", rename("kind", "type"))
    places = {(problem.stem, problem.place) for problem in compare(CURRENT, changed)}
    assert {("trigger_event", "kind"), ("event_ingested", "event.kind")} <= places
    assert all(place.endswith(("kind", "type")) for _stem, place in places)


def test_a_record_that_has_gone_is_named(tmp_path: Path) -> None:
    copied_schemas(tmp_path, "stage_skip", unchanged)
    (tmp_path / "stage_skip.avsc").unlink()
    problems = [str(problem) for problem in compare(CURRENT, SchemaSet.load(tmp_path))]
    assert problems == ["stage_skip.avsc, backward: the released record has gone"]


@pytest.mark.parametrize(
    ("stem", "change"),
    [
        ("stage_skip", add(name="ticket", type=["null", "string"], default=None)),
        ("stage_skip", lambda definition: definition.update(doc="Said better.")),
        (
            "record_quarantined",
            lambda definition: field(definition, "code")["type"]["symbols"].append("expired"),
        ),
    ],
)
def test_additions_with_defaults_are_compatible(tmp_path: Path, stem: str, change: Change) -> None:
    changed = copied_schemas(tmp_path, stem, change)
    assert compare(CURRENT, changed) == []
    assert avro_can_read(CURRENT[stem], changed[stem])
    assert avro_can_read(changed[stem], CURRENT[stem])


def test_a_release_is_a_copy_that_later_versions_are_compared_with(tmp_path: Path) -> None:
    current = copied_schemas(tmp_path, "tick", unchanged)
    copies = release("1.0.0", folder=tmp_path)
    assert [path.name for path in copies] == [f"{stem}.avsc" for stem in current]
    assert SchemaSet.load(tmp_path).releases["1.0.0"] == current


def test_a_release_is_copied_once(tmp_path: Path) -> None:
    copied_schemas(tmp_path, "tick", unchanged)
    release("1.0.0", folder=tmp_path)
    copied_schemas(tmp_path, "tick", rename("due_ms", "at_ms"))
    with pytest.raises(SchemaError, match="exists; a release is copied once"):
        release("1.0.0", folder=tmp_path)
    release("1.0.0", replace=True, folder=tmp_path)
    field_names = [f.name for f in SchemaSet.load(tmp_path).releases["1.0.0"]["tick"].shape.fields]
    assert field_names == ["at_ms"]


def test_an_incompatible_release_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    copied_schemas(tmp_path, "tick", unchanged)
    release("1.0.0", folder=tmp_path)
    copied_schemas(tmp_path, "tick", rename("due_ms", "at_ms"))
    with pytest.raises(SchemaError, match=r"incompatible with 1\.0\.0:\n  tick\.avsc, backward"):
        release("1.1.0", folder=tmp_path)
    assert not (tmp_path / "released" / "1.1.0").exists()


def test_a_release_before_the_last_is_refused(tmp_path: Path) -> None:
    copied_schemas(tmp_path, "tick", unchanged)
    release("1.10.0", folder=tmp_path)
    with pytest.raises(SchemaError, match=r"expected one after the last, 1\.10\.0"):
        release("1.9.0", folder=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "usage: python -m schemas.release"),
        (["1.0.0", "2.0.0"], 2, "usage: python -m schemas.release"),
        (["one"], 1, "release 'one': expected <major>.<minor>.<patch>"),
        (["0.1.0"], 1, "exists; a release is copied once"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    assert message in capsys.readouterr().err
