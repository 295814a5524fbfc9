"""`streams.core` is pure: a fold that can reach a clock, a socket or chance cannot be replayed."""

import ast
import sys
from pathlib import Path

import pytest

import streams.core

CORE = Path(streams.core.__file__).parent
MODULES = sorted(CORE.rglob("*.py"))

# Value modules of the standard library that folds may use.
ALLOWED = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "keyword",
    "math",
    "operator",
    "re",
    "struct",
    "typing",
}
# Ways around the imports.
BANNED_NAMES = {"open", "__import__", "eval", "exec", "compile", "globals", "input", "id", "hash"}


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_fold_imports_values_only(module: Path) -> None:
    foreign = {
        name
        for name in imported(ast.parse(module.read_text()))
        if name not in ALLOWED and not (name == "streams.core" or name.startswith("streams.core."))
    }
    assert foreign == set()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_fold_reaches_nothing_by_name(module: Path) -> None:
    tree = ast.parse(module.read_text())
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called & BANNED_NAMES == set()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_fold_never_iterates_a_set(module: Path) -> None:
    """The order of a set of texts differs from process to process."""
    for node in ast.walk(ast.parse(module.read_text())):
        iterated = node.iter if isinstance(node, ast.For | ast.comprehension) else None
        assert not isinstance(iterated, ast.Set | ast.SetComp), ast.dump(node)


def test_the_list_of_what_is_allowed_names_real_modules() -> None:
    roots = {name.partition(".")[0] for name in ALLOWED} - {"__future__"}
    assert roots <= sys.stdlib_module_names
