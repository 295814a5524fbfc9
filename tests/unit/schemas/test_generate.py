"""The generated types and page follow the schemas."""

from __future__ import annotations

import ast
from typing import Any, get_args, get_type_hints

import pytest

from schemas import SchemaSet
from schemas.generate import PAGE, WIRE, main, schemas_page, wire_source
from schemas.shape import Enum, Nullable
from streams.core import wire

SCHEMAS = SchemaSet.load()
REMEDY = "run: python -m schemas.generate"


def test_the_types_are_up_to_date() -> None:
    assert WIRE.read_text(encoding="utf-8") == wire_source(SCHEMAS), REMEDY


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == schemas_page(SCHEMAS), REMEDY


def test_generating_twice_gives_the_same_text() -> None:
    again = SchemaSet.load()
    assert wire_source(again) == wire_source(SCHEMAS)
    assert schemas_page(again) == schemas_page(SCHEMAS)


def test_the_types_need_the_standard_library_only() -> None:
    tree = ast.parse(WIRE.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "collections.abc", "typing"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import)]


@pytest.mark.parametrize("stem", SCHEMAS)
def test_each_record_has_a_type_with_its_fields(stem: str) -> None:
    shape = SCHEMAS[stem].shape
    hints: dict[str, Any] = get_type_hints(getattr(wire, shape.name))
    assert list(hints) == [field.name for field in shape.fields]
    for field in shape.fields:
        inner = field.shape.inner if isinstance(field.shape, Nullable) else field.shape
        assert (type(None) in get_args(hints[field.name])) == isinstance(field.shape, Nullable)
        if isinstance(inner, Enum):
            assert get_args(getattr(wire, inner.name)) == inner.symbols


def test_the_page_tells_of_every_record_and_field() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for schema in SCHEMAS.values():
        section = page.split(f"## {schema.shape.name}\n")[1].split("\n## ")[0]
        assert schema.shape.doc in section
        assert f"`schemas/{schema.stem}.avsc`" in section
        for field in schema.shape.fields:
            assert f"| `{field.name}` |" in section


def test_check_passes_on_what_is_committed_and_an_unknown_argument_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--check"]) == 0
    assert main(["--wrong"]) == 2
    assert capsys.readouterr().err == "usage: python -m schemas.generate [--check]\n"
