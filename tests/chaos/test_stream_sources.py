"""Ingest members that read a topic of others are killed: each record is dispatched once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    assert_audit_is_clean,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.topics import new_topic

RECORDS = 6_000
KILLS = 4

MANIFEST = """
[[triggers]]
id = "all"
kind = "stream"
provider = "kafka"
match = {{}}
handler = "seen"
topic = "{topic}"
start = "earliest"
"""

HANDLERS = """
async def seen(event):
    return event.payload["raw"]
"""


def members(settings: Settings, folder: Path, manifest: Path) -> Iterator[Member]:
    rest = "registry,inbox,dispatch,invoker"
    for name, roles in (("ingest-0", "ingest"), ("ingest-1", "ingest"), ("rest", rest)):
        own = replace(settings, state_dir=folder / name, http_port=0)
        yield Member(name, roles, own, folder, ["--manifest", str(manifest)])


@pytest.mark.soak
@pytest.mark.chaos
@pytest.mark.broker
@pytest.mark.timeout(300)
def test_each_record_is_dispatched_once_whichever_reader_is_killed(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    topic = new_topic(settings, partitions=3, prefix="shop")
    manifest = write_manifest(tmp_path / "app", MANIFEST.format(topic=topic), HANDLERS)
    with Fleet(members(settings, tmp_path, manifest)) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        load = threading.Thread(target=_produce, args=(settings, topic))
        load.start()
        for kill in range(KILLS):
            part = (kill + 1) * RECORDS // (KILLS + 1)
            wait_until(f"{part} outcomes", lambda part=part: len(_results(settings)) >= part)
            victim = fleet[f"ingest-{kill % 2}"]
            wait_until(f"{victim.name} runs", lambda victim=victim: victim.is_up)
            victim.kill()
        load.join()
        numbers = set(range(RECORDS))
        wait_until("every record's outcome", lambda: set(_results(settings)) >= numbers)
        codes = fleet.terminate()
    assert set(codes.values()) == {0}, codes
    assert _results(settings) == Counter(range(RECORDS))
    assert_audit_is_clean(settings)


def _produce(settings: Settings, topic: str) -> None:
    producer = make_producer(settings)
    for number in range(RECORDS):
        producer.produce(topic, json.dumps(number).encode(), str(number).encode())
        if number % 50 == 0:
            producer.flush(30)
            threading.Event().wait(0.1)  # the load itself: spread over the kills
    assert producer.flush(30) == 0


def _results(settings: Settings) -> Counter[int]:
    found = read(settings, "trigger.outbox", {"dispatch_succeeded"})
    return Counter(json.loads(entry.value["result"]) for entry in found)
