"""The house style as far as a machine can read it: sizes, escapes and unfinished work."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
FOLDERS = ("streams", "schemas", "topology", "tests", "bench", "examples", "tools")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400
TEST_FILE_LINES_MAX = 700  # a test file covers one module, and is mostly cases
GENERATED = {ROOT / "streams" / "core" / "wire.py"}

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
BARE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[)")
BARE_NOQA = re.compile(r"#\s*noqa(?!:)")
WITH_BROKER = re.compile(r"\bmark\.(broker|chaos)\b")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_a_function_fits_on_a_page() -> None:
    long = {
        f"{name(path)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in FILES
        for node in functions(path)
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    }
    assert long == {}


def test_a_file_is_short_enough_to_be_about_one_thing() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in FILES if path not in GENERATED}
    long = {
        name(path): count
        for path, count in lines.items()
        if count > (TEST_FILE_LINES_MAX if path.is_relative_to(TESTS) else FILE_LINES_MAX)
    }
    assert long == {}


def test_nothing_is_left_to_be_done_or_hidden() -> None:
    left = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in FILES
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if any(pattern.search(line) for pattern in (UNFINISHED, BARE_IGNORE, BARE_NOQA))
    ]
    assert left == []


def test_tests_with_a_broker_lie_where_make_test_looks_for_them() -> None:
    (line,) = re.findall(r"^WITH_BROKER := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    folders = [ROOT / folder for folder in line.split()]
    marked = [path for path in TESTS.rglob("test_*.py") if WITH_BROKER.search(path.read_text())]
    assert len(marked) > 10
    assert [name(path) for path in marked if not any(map(path.is_relative_to, folders))] == []


def test_there_is_something_to_look_at() -> None:
    assert len(FILES) > 100
