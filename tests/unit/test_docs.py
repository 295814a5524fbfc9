"""The pages say what is true: links lead somewhere, log lines and exit codes are all explained."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams import errors
from streams.cli.main import GROUPS
from streams.core.manifest import Manifest, parse_manifest
from streams.settings import Settings
from tests.support.log_lines import log_lines

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def fenced(page: Path, language: str) -> list[str]:
    """Return the contents of a page's fenced blocks in one language."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made from them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def links() -> Iterator[tuple[Path, str]]:
    """Yield every link of every page that leads into the repository."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if "://" not in target:
                yield page, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    lost: list[str] = []
    for _, target in (each for each in links() if each[0] == page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            lost.append(target)

    assert lost == []


def test_every_page_of_docs_can_be_reached_from_the_readme() -> None:
    reached, front = set[Path](), {ROOT / "README.md"}
    while front:
        reached |= front
        front = {
            (page.parent / target.partition("#")[0]).resolve()
            for page, target in links()
            if page in reached and target.partition("#")[0].endswith(".md")
        } - reached

    assert set(PAGES) - reached == set()


def test_every_log_line_that_an_operator_may_see_is_explained() -> None:
    explained = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", OPERATIONS))
    unexplained = {line for line in log_lines() if line.event not in explained}

    assert unexplained == set()


def test_no_log_line_is_explained_that_nobody_writes() -> None:
    tables = OPERATIONS[OPERATIONS.index("## Log lines") : OPERATIONS.index("## A halted")]
    rows = [line.split("|")[1] for line in tables.splitlines() if line.startswith("| `")]
    named = {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}

    assert named - {line.event for line in log_lines()} == set()


def test_log_lines_are_named_by_an_event_that_never_changes() -> None:
    for line in log_lines():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", line.event), line


def test_every_exit_code_is_explained() -> None:
    codes = {getattr(errors, name).exit_code for name in errors.__all__}
    table = OPERATIONS[OPERATIONS.index("## Exit codes") : OPERATIONS.index("## Health")]
    explained = {int(each) for each in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}

    assert codes | {0, 130} == explained


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_variables_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    known = {name for row in Settings().describe() for name in (row.env, row.also)}

    assert set(re.findall(r"\bharn ([a-z]+)\b(?! is)", text)) <= set(GROUPS)
    assert set(re.findall(r"\bHARN_[A-Z_]+[A-Z]\b", text)) <= known


def test_manifests_on_the_pages_are_manifests() -> None:
    blocks = [(page, block) for page in PAGES for block in fenced(page, "toml")]

    assert blocks
    for page, block in blocks:
        assert isinstance(parse_manifest(tomllib.loads(block), page.name), Manifest)


def test_python_on_the_pages_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "github-triage")
    for page in (ROOT / "README.md", ROOT / "docs" / "testing-your-handlers.md"):
        scope: dict[str, object] = {"__name__": page.stem}
        blocks = fenced(page, "python")
        assert blocks
        for block in blocks:
            exec(compile(block, page.name, "exec"), scope)
        for name, test in list(scope.items()):
            if name.startswith("test_") and callable(test):
                test()
