"""The house style as far as a machine can read it: sizes, escapes and unfinished work."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("streams", "schemas", "topology", "tests", "bench", "examples", "tools")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400
TEST_FILE_LINES_MAX = 700  # a test file covers one module, and is mostly cases
GENERATED = {ROOT / "streams" / "core" / "wire.py"}

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
BARE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[)")
BARE_NOQA = re.compile(r"#\s*noqa(?!:)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_function_fits_on_a_page(path: Path) -> None:
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in functions(path)
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    }
    assert long == {}


@pytest.mark.parametrize("path", [path for path in FILES if path not in GENERATED], ids=name)
def test_a_file_is_short_enough_to_be_about_one_thing(path: Path) -> None:
    tests = path.is_relative_to(ROOT / "tests")
    lines_max = TEST_FILE_LINES_MAX if tests else FILE_LINES_MAX
    assert len(path.read_text().splitlines()) <= lines_max


@pytest.mark.parametrize("path", [path for path in FILES if path != Path(__file__)], ids=name)
def test_nothing_is_left_to_be_done_or_hidden(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        for pattern in (UNFINISHED, BARE_IGNORE, BARE_NOQA):
            assert not pattern.search(line), f"{name(path)}:{number}: {line.strip()}"


def test_there_is_something_to_look_at() -> None:
    assert len(FILES) > 100
