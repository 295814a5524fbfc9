"""Triggers with several sources: what each binding is made of, and what is refused."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from streams.core.manifest import Manifest, parse_manifest
from streams.core.manifest_sources import SOURCES_MAX
from streams.core.wire import BindingDefinition
from streams.expressions import EXPRESSIONS
from streams.schedules import CALENDAR

TRIGGER = """
[[triggers]]
id = "digest"
handler = "digest"
when = "cel:event.kind != 'x'"
retry = { max = 3 }
concurrency = { key = "event.tenant_id", max = 2 }
timezone = "Europe/Berlin"
secrets = { shared = "github/shared", signing_secret = "github/old" }
"""
MORNINGS = """
[[triggers.sources]]
id = "mornings"
kind = "cron"
provider = "cron"
match = {}
schedule = "0 9 * * *"
"""
RELEASES = """
[[triggers.sources]]
kind = "webhook"
provider = "github"
match = { events = ["release.published"] }
retry = { max = 9 }
filter = "event.payload.id"
secrets = { signing_secret = "github/new" }
"""


def parse(text: str) -> Manifest | tuple[str, ...]:
    return parse_manifest(tomllib.loads(text), "harn.toml", EXPRESSIONS, CALENDAR)


def bindings(text: str) -> list[tuple[BindingDefinition, dict[str, Any]]]:
    manifest = parse(text)
    assert isinstance(manifest, Manifest), manifest
    return [(each, json.loads(each["definition"])) for each in manifest.bindings]


def problems(text: str) -> tuple[str, ...]:
    found = parse(text)
    assert isinstance(found, tuple), "expected problems"
    return found


WITHOUT_SECRETS = TRIGGER.replace("secrets = {", "#")


def test_each_source_is_a_binding_under_the_triggers_id() -> None:
    (mornings, _), (releases, _) = bindings(WITHOUT_SECRETS + MORNINGS + RELEASES)
    assert (mornings["trigger_id"], mornings["kind"]) == ("digest.mornings", "cron")
    assert (releases["trigger_id"], releases["kind"]) == ("digest.source-2", "webhook")
    assert releases["events"] == ["release.published"]
    assert {mornings["handler"], releases["handler"]} == {"digest"}


def test_a_source_overrides_what_it_names_and_inherits_the_rest() -> None:
    (mornings, first), (releases, second) = bindings(WITHOUT_SECRETS + MORNINGS + RELEASES)
    assert (mornings["retry"]["max_attempts"], releases["retry"]["max_attempts"]) == (3, 9)
    assert first["concurrency"] == second["concurrency"] == {"key": "event.tenant_id", "max": 2}
    assert first["when"] == second["when"]
    assert ("filter" in first, second["filter"]) == (False, "event.payload.id")


def test_keys_of_a_kind_go_to_the_sources_of_that_kind() -> None:
    (_, first), (_, second) = bindings(WITHOUT_SECRETS + MORNINGS + RELEASES)
    assert first["timezone"] == "Europe/Berlin"
    assert "timezone" not in second
    (_, own), _ = bindings(WITHOUT_SECRETS + MORNINGS + 'timezone = "UTC"\n' + RELEASES)
    assert "timezone" not in own


def test_secrets_are_merged_and_the_sources_count() -> None:
    [(_, found)] = bindings(TRIGGER.replace("timezone", "#") + RELEASES)
    assert found["secrets"] == {"shared": "github/shared", "signing_secret": "github/new"}


def test_one_source_alone_is_the_same_definition_as_a_trigger_of_that_id() -> None:
    [(by_source, _)] = bindings(TRIGGER.replace("timezone", "#") + RELEASES)
    alone = TRIGGER.replace('"digest"\nhandler', '"digest.source-1"\nhandler')
    alone = alone.replace("timezone", "#").replace("retry = { max = 3 }", "")
    alone = alone.replace("github/old", "github/new")
    body = RELEASES.replace("[[triggers.sources]]", "").replace("secrets =", "#")
    [(by_itself, _)] = bindings(alone + body)
    assert by_source == by_itself


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        # Vector 1-10 for sources: the label of the source stands in the message.
        (
            MORNINGS.replace("match = {}", ""),
            "sources[0].match is missing: source 'mornings' needs one",
        ),
        (MORNINGS.replace('kind = "cron"', ""), "sources[0].kind is missing: source 'mornings'"),
        (MORNINGS.replace('provider = "cron"', ""), "sources[0].provider is missing"),
        (MORNINGS.replace('"0 9 * * *"', '"often"'), "sources[0].schedule is 'often', which is no"),
        (MORNINGS + 'handler = "x"\n', "sources[0].handler belongs to the trigger, not to one of"),
        (MORNINGS + 'when = "cel:true"\n', "sources[0].when belongs to the trigger"),
        (MORNINGS + "sources = []\n", "sources[0].sources is not a key here"),
        (MORNINGS + "zzz = 1\n", "sources[0].zzz is not a key here"),
        (MORNINGS + 'window = { mode = "x" }\n', "sources[0].window is not built in this release"),
        (MORNINGS + "max_waiting = 0\n", "sources[0].max_waiting is 0, expected a whole number"),
        (
            MORNINGS + MORNINGS,
            "sources[1].id is 'digest.mornings', which [[triggers]] 1 (digest): sources[0] has",
        ),
        (
            MORNINGS.replace('"mornings"', f'"{"x" * 200}"'),
            "sources[0].id makes an id of more than 200 characters",
        ),
    ],
)
def test_a_mistake_in_a_source_is_one_problem_that_says_where(source: str, problem: str) -> None:
    [found] = problems(WITHOUT_SECRETS + source)
    assert found.startswith("harn.toml: [[triggers]] 1 (digest): ")
    assert problem in found


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('kind = "cron"', "kind stands beside sources: each source has its own"),
        ('provider = "cron"', "provider stands beside sources"),
        ("match = {}", "match stands beside sources"),
        ("max_waiting = 0", "max_waiting is 0, expected a whole number"),
        ("zzz = 1", "zzz is not a key here"),
    ],
)
def test_a_mistake_beside_the_sources_is_told_once(line: str, problem: str) -> None:
    [found] = problems(WITHOUT_SECRETS + line + MORNINGS + MORNINGS.replace("mornings", "b"))
    assert found.startswith(f"harn.toml: [[triggers]] 1 (digest): {problem}")


def test_a_key_that_no_source_takes_is_refused() -> None:
    [found] = problems(WITHOUT_SECRETS + RELEASES)
    assert "timezone is a key that no source of the trigger takes" in found


@pytest.mark.parametrize("sources", ["[]", "3", "[1]"])
def test_sources_are_tables(sources: str) -> None:
    text = WITHOUT_SECRETS.replace("timezone", "#") + f"sources = {sources}\n"
    [found] = problems(text)
    assert "sources" in found
    assert "expected" in found


def test_the_number_of_sources_is_bounded() -> None:
    def many(count: int) -> str:
        numbered = (MORNINGS.replace("mornings", f"s{number}") for number in range(count))
        return WITHOUT_SECRETS + "".join(numbered)

    assert len(bindings(many(SOURCES_MAX))) == SOURCES_MAX
    [found] = problems(many(SOURCES_MAX + 1))
    assert f"sources has {SOURCES_MAX + 1} entries, expected at most {SOURCES_MAX}" in found


def test_an_id_that_another_trigger_has_is_refused_after_expansion() -> None:
    other = """
    [[triggers]]
    id = "digest.mornings"
    kind = "webhook"
    provider = "github"
    match = {}
    handler = "digest"
    """
    [found] = problems(WITHOUT_SECRETS + MORNINGS + other)
    assert (
        "[[triggers]] 2 (digest.mornings): id is 'digest.mornings', which [[triggers]] 1" in found
    )
