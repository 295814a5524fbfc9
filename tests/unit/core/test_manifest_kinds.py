"""Keys that belong to one kind of trigger: what is taken, and what is refused with which words."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from streams.core.manifest import Manifest, parse_manifest
from streams.expressions import EXPRESSIONS
from streams.schedules import CALENDAR

CRON = """
[[triggers]]
id = "nightly"
kind = "cron"
provider = "cron"
match = { events = ["cron.tick"] }
handler = "f"
schedule = "0 3 * * *"
"""


def parse(text: str) -> Manifest | tuple[str, ...]:
    return parse_manifest(tomllib.loads(text), "harn.toml", EXPRESSIONS, CALENDAR)


def definition(text: str) -> dict[str, Any]:
    manifest = parse(text)
    assert isinstance(manifest, Manifest), manifest
    return json.loads(manifest.bindings[0]["definition"])


def problem(text: str) -> str:
    found = parse(text)
    assert isinstance(found, tuple), "expected a problem"
    assert len(found) == 1, found
    return found[0]


def test_a_cron_trigger_keeps_what_its_timer_needs() -> None:
    text = CRON + 'timezone = "Europe/Berlin"\nmissed = "all"\n'
    kept = definition(text)
    assert (kept["schedule"], kept["timezone"], kept["missed"]) == (
        "0 3 * * *",
        "Europe/Berlin",
        "all",
    )


def test_writing_out_the_defaults_of_a_cron_trigger_changes_nothing() -> None:
    assert definition(CRON + 'timezone = "UTC"\nmissed = "last"\n') == definition(CRON)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('schedule = "often"', "schedule is 'often', which is no cron expression: it has 1 fields"),
        ("schedule = 5", "schedule is 5, expected a cron expression"),
        ('schedule = " "', "schedule is ' ', expected a cron expression"),
        (f'schedule = "{"0" * 201}"', "it has 201 characters, expected at most 200"),
        ("", "schedule is missing: a cron trigger needs one"),
    ],
)
def test_a_schedule_that_cannot_be_read_is_refused_with_its_text(line: str, expected: str) -> None:
    found = problem(CRON.replace('schedule = "0 3 * * *"', line))
    assert found.startswith("harn.toml: [[triggers]] 1 (nightly): ")
    assert expected in found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # Vector 1-17.
        ('timezone = "+02:00"', "expected an IANA name such as 'Europe/Berlin' or 'UTC': it is an"),
        ('timezone = "Berlin"', "timezone is 'Berlin', expected an IANA name"),
        ("timezone = 2", "timezone is 2, expected an IANA name"),
        (f'timezone = "{"x" * 201}"', "it has 201 characters"),
        ('missed = "some"', "missed is 'some', expected one of last, skip, all"),
    ],
)
def test_a_zone_or_policy_that_does_not_exist_is_refused(line: str, expected: str) -> None:
    assert expected in problem(CRON + line)


def test_a_schedule_makes_one_kind_of_event() -> None:
    found = problem(CRON.replace("cron.tick", "cron.tock"))
    assert "match.events[0] is 'cron.tock', expected 'cron.tick'" in found


def test_cron_is_a_provider_of_its_own() -> None:
    found = problem(CRON.replace('provider = "cron"', 'provider = "github"'))
    assert "'github' does not support kind 'cron', only webhook" in found


def test_a_key_of_another_kind_is_refused() -> None:
    webhook = CRON.replace('kind = "cron"', 'kind = "webhook"').replace(
        'provider = "cron"', 'provider = "github"'
    )
    assert "schedule is a key of kind 'cron', not of 'webhook'" in problem(webhook)
