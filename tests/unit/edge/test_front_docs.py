"""The pages for manifests and events say what the code takes."""

import re
from pathlib import Path

import pytest

from streams.core import manifest, manifest_budget, manifest_retry
from streams.core.provider_catalog import BUILT_KINDS, BUILT_STREAMS, PROVIDERS, TRIGGER_KINDS
from streams.edge.ingest.body import EVENTS_MAX
from streams.edge.ingest.events import EventRequest

DOCS = Path(__file__).parents[3] / "docs"


def first_column(page: str) -> set[str]:
    cells = re.findall(r"^\| ((?:`[^`|]+`(?:, (?:or )?)?)+) \|", page, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_key_of_a_manifest_is_described() -> None:
    page = (DOCS / "manifest.md").read_text()
    budgets = (*manifest_budget._BUDGET, *manifest_budget._WHEN_BUDGET)
    fields = (*manifest._TRIGGER, *manifest_retry._RETRY, *budgets)
    described = {name for name in first_column(page) if not name.startswith("channel:")}
    assert described == {field.name for field in fields if field.read is not None}


def test_every_provider_and_kind_of_this_release_is_named() -> None:
    page = (DOCS / "manifest.md").read_text()
    taken = {name: set(kinds) & set(BUILT_KINDS) for name, kinds in PROVIDERS.items()}
    usable = {name for name, kinds in taken.items() if kinds - {"stream"} or name in BUILT_STREAMS}
    for name in (*usable, *TRIGGER_KINDS):
        assert f"`{name}`" in page, name


def test_every_field_of_an_event_is_described() -> None:
    page = (DOCS / "events.md").read_text()
    assert first_column(page) == set(EventRequest.__struct_fields__)


@pytest.mark.parametrize("number", [EVENTS_MAX, 512, 1024])
def test_the_bounds_of_the_event_api_are_named(number: int) -> None:
    assert re.search(rf"\b{number}\b", (DOCS / "events.md").read_text())
