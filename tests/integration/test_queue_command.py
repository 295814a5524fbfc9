"""`harn queue`: queues are created as they are asked for, or refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streams.core.placement import partition_of
from streams.edge.codecs import codec_of
from streams.edge.queue_standing import keys_of
from streams.edge.topic_reader import topic_names
from streams.settings import Settings
from tests.support.app_cluster import cli, provision, settings_for_app, write_manifest
from tests.support.broker import PrivateBroker

pytestmark = [pytest.mark.broker]


MANIFEST = """
[[triggers]]
id = "t"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "worker://triage_x"
"""


def listed(settings: Settings) -> dict[str, tuple[int, str]]:
    done = cli(settings, "queue", "list", "--json")
    assert done.returncode == 0, done.stderr
    return {each["queue"]: (each["shards"], each["shard_by"]) for each in json.loads(done.stdout)}


def test_queues_are_created_listed_and_refused(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)

    done = cli(settings, "queue", "create", "triage")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "created worker.triage",
        "created worker.triage.claims",
        "created worker.triage.responses",
        "queue triage: 1 shard",
    ]
    again = cli(settings, "queue", "create", "triage", "--json")
    assert json.loads(again.stdout) == {
        "queue": "triage",
        "shards": 1,
        "shard_by": "tenant",
        "topics": [],
    }
    wide = cli(settings, "queue", "create", "wide", "--shards", "4", "--shard-by", "binding")
    assert wide.stdout.splitlines()[-1] == "queue wide: 4 shards by binding"
    assert listed(settings) == {"triage": (1, "tenant"), "wide": (4, "binding")}
    keys = keys_of(settings, codec_of(settings), ["wide"])["wide"]
    assert {partition_of(key.encode(), settings.partitions) for key in keys} == set(range(4))
    shown = cli(settings, "queue", "list")
    assert "wide    worker.wide    4 by binding" in shown.stdout

    refusals = [
        (("triage", "--shards", "2"), 2, "is there with 1 shards by tenant, expected 2"),
        (("wide",), 2, "is there with 4 shards by binding, expected 1 by tenant"),
        (("wide", "--shards", "4"), 2, "expected 4 by tenant"),
        (("requests",), 3, "would be the topic worker.requests, which is declared itself"),
        (("a.claims",), 3, "which belongs to worker.{queue}.claims"),
        (("two words",), 3, "expected only ASCII letters"),
        ((" ",), 3, "the value is blank"),
        (("q" * 240,), 3, "expected <= 249"),
        (("triage.x",), 0, ""),
        (("triage_x",), 3, "would share the topic worker.triage_x"),
    ]
    for arguments, code, words in refusals:
        done = cli(settings, "queue", "create", *arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert words in done.stderr
    assert set(listed(settings)) == {"triage", "wide", "triage.x"}
    assert not any("requests.claims" in name for name in topic_names(settings))

    manifest = write_manifest(tmp_path / "app", MANIFEST, "")
    done = cli(settings, "trigger", "apply", str(manifest))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the topic worker.triage.x is there" in done.stderr
