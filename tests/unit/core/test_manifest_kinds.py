"""Keys that belong to one kind of trigger: what is taken, and what is refused with which words."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from streams.core.manifest import Manifest, parse_manifest
from streams.core.stream_source import StreamSource, source_of
from streams.expressions import EXPRESSIONS
from streams.schedules import CALENDAR
from topology import TOPOLOGY

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


# ---------------------------------------------------------------------- streams
STREAM = """
[[triggers]]
id = "orders"
kind = "stream"
provider = "kafka"
match = {}
handler = "f"
"""


def source(*lines: str) -> StreamSource:
    manifest = parse(STREAM + "\n".join(lines))
    assert isinstance(manifest, Manifest), manifest
    found = source_of(manifest.bindings[0])
    assert found is not None
    return found


def test_a_stream_reads_its_topics_in_a_group_of_its_own() -> None:
    one = source('topic = "shop.orders"')
    assert (one.topics, one.format, one.start) == (("shop.orders",), "json", "latest")
    assert one.group == "harn.stream.default.orders"
    two = source('topics = ["b", "a"]', 'format = "avro"', 'start = "earliest"')
    assert (two.topics, two.format, two.start) == (("a", "b"), "avro", "earliest")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", "topic is missing: a stream of 'kafka' needs topic = '…' or topics"),
        ("topics = []", "topic is missing: a stream of 'kafka' needs topic"),
        ('topic = "a"\ntopics = ["b"]', "topic stands beside topics: name all of them there"),
        ('topic = "a b"', "topic is 'a b', expected the name of a topic"),
        ('topic = ".."', "topic is '..', expected the name of a topic"),
        (f'topic = "{"x" * 250}"', "expected the name of a topic: 1 to 249"),
        ('topics = ["a", 3]', "topics[1] is 3, expected text"),
        ('topics = ["a", "a"]', "topics[1] is 'a', which stands in the list already"),
        (f"topics = {[f't{n}' for n in range(21)]}", "topics has 21 entries, expected at most 20"),
        ('topic = "a"\nformat = "xml"', "format is 'xml', expected one of json, text, bytes, avro"),
        ('topic = "a"\nstart = "now"', "start is 'now', expected one of latest, earliest"),
        ('topic = "a"\nwindow = { mode = "tumbling" }', "window is not built in this release"),
        ('topic = "a"\nschedule = "@daily"', "schedule is a key of kind 'cron', not of 'stream'"),
    ],
)
def test_a_stream_that_cannot_be_read_is_refused(lines: str, expected: str) -> None:
    assert expected in problem(STREAM + lines)


def test_streams_of_other_providers_come_later() -> None:
    found = problem((STREAM + 'topic = "a"').replace('"kafka"', '"nats"'))
    assert "'nats' is not built in this release, whose streams are those of kafka" in found


def test_no_topic_of_our_own_can_be_a_source() -> None:
    ours = [topic.name.replace("{", "").replace("}", "") for topic in TOPOLOGY.topics]
    for name in ours:
        found = problem(STREAM + f'topic = "{name}"')
        assert f"topic is '{name}', which this application writes itself" in found
    for name in ("orders", "triggered", "workers", "shop.trigger.x"):
        assert source(f'topic = "{name}"').topics == (name,)


def test_a_definition_that_no_manifest_would_hold_is_no_source() -> None:
    manifest = parse(STREAM + 'topic = "a"')
    assert isinstance(manifest, Manifest)
    [found] = manifest.bindings
    for broken in ("no json", "{}", '{"topic":"trigger.dispatches"}', '{"topic":"a","format":"x"}'):
        assert source_of({**found, "definition": broken}) is None
    assert source_of({**found, "kind": "webhook"}) is None


def test_the_groups_of_streams_are_those_that_ingest_may_join() -> None:
    ingest = next(edge for edge in TOPOLOGY.edges if edge.name == "ingest")
    assert ingest.foreign_groups is not None
    assert source('topic = "a"').group.startswith(ingest.foreign_groups)


# ---------------------------------------------------------------------- channels
CHANNEL = """
[[triggers]]
id = "orders"
kind = "channel.emit"
provider = "channel"
match = { events = ["channel:orders", "channel:tenant:default:orders", "channel:session:x"] }
handler = "f"
"""


def test_selectors_of_channels_are_kept_in_full_and_once() -> None:
    manifest = parse(CHANNEL)
    assert isinstance(manifest, Manifest), manifest
    expected = ["channel:tenant:default:orders", "channel:session:x"]
    assert manifest.bindings[0]["events"] == expected


def test_what_is_no_selector_of_a_channel_is_refused() -> None:
    found = problem(CHANNEL.replace("channel:orders", "orders"))
    assert "match.events[0] is 'orders', expected channel:<name>, channel:session:<name>" in found
