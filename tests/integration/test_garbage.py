"""Everything that anybody may write to any topic: nothing dies, and what is good goes on."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streams.codec import Codec
from streams.edge.broker.ports import pick_ports
from streams.edge.topic_reader import TopicReader, topic_names
from streams.kafka import make_admin, make_producer
from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    cli,
    emit,
    event,
    provision,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.granted import WorkerProcess
from tests.support.unreadable import OURS, garbage
from topology import TOPOLOGY
from topology.family import family_of

pytestmark = [pytest.mark.broker]

CODEC = Codec()
OUTBOX, RESPONSES = "trigger.outbox", "worker.triage.responses"
ROLES = "ingest,registry,inbox,dispatch,invoker,relay,scheduler"

MANIFEST = """
[exports]
handlers = "lib.py"

[[triggers]]
id = "all"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::seen"
throttle = { period = "1s", max = 100 }

[[triggers]]
id = "job"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "worker://triage"
"""

CONSUMER = """
[exports]
handlers = "lib.py"

[[triggers]]
id = "job"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::seen"
"""

HANDLERS = """
async def seen(event):
    return event.kind
"""

COMMANDS = (
    *(("audit", "verify"), ("audit", "invariants"), ("audit", "explain", "nobody"), ("doctor",)),
    *(("queue", "list"), ("orchestrator", "queue", "ls"), ("orchestrator", "metrics"), ("fleet",)),
    *(("trigger", "list"), ("trigger", "dlq", "list"), ("trigger", "explain", "trigger_evt_a0")),
    *(("log", "tail", topic) for topic in ("worker.queues", "agent.jobs", "trigger.invocations")),
)


def write_garbage(settings: Settings, random: Random) -> None:
    """Write to every topic but those that are a stage's memory."""
    found = make_admin(settings).list_topics(timeout=30).topics
    producer = make_producer(settings)
    for name in topic_names(settings):
        declared = family_of(TOPOLOGY, name)
        if declared is None or declared.role in OURS:
            continue
        for partition in found[name].partitions:
            for each in garbage(random, name, partition):
                producer.produce(
                    each.topic, each.value, each.key, each.partition, headers=each.headers
                )
                producer.poll(0)
    assert producer.flush(60) == 0


def said(settings: Settings, topic: str, kind: str) -> list[dict[str, Any]]:
    """What a topic says of a kind, without what is none."""
    with TopicReader(settings, topic) as reader:
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        found: list[dict[str, Any]] = []
        while not reader.at_end:
            values = (CODEC.decode_as(kind, each.value) for each in reader.read(1.0))
            found += [value for value in values if value is not None]
    return found


def are_done(settings: Settings, events: list[str]) -> bool:
    """Whether both dispatches of each event have ended, and its job is answered."""
    ended = Counter(
        each["event_id"] for each in said(settings, OUTBOX, "outbox_dispatch_succeeded")
    )
    jobs = {each["event_id"] for each in said(settings, RESPONSES, "job_response")}
    return all(ended[each] >= 2 and each in jobs for each in events)


def work(settings: Settings, fleet: Fleet, name: str) -> None:
    """Send good events, and wait until all of them came through."""
    asyncio.run(emit(settings, [event(f"{name}{number}") for number in range(5)]))
    ids = [f"trigger_evt_{name}{number}" for number in range(5)]

    def look() -> bool:
        for member in fleet.members.values():
            assert member.running, f"{member.name} has ended:\n{member.tail()}"
        return are_done(settings, ids)

    wait_until(f"{name} came through", look)


def test_whatever_stands_in_the_topics_all_goes_on(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path, agent_turns_api="on")
    [metrics_port] = pick_ports(tmp_path, 1)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    consumer = write_manifest(tmp_path / "consumer", CONSUMER, HANDLERS)
    options = ["triage", "--config", str(consumer), "--consumer-id", "worker-a"]
    everything = replace(settings, metrics_port=metrics_port)
    members = [
        Member("all", ROLES, everything, tmp_path, ["--manifest", str(manifest)]),
        WorkerProcess("worker", "", settings, tmp_path, options),
    ]
    with Fleet(members, supervise=False) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        work(settings, fleet, "a")
        write_garbage(settings, Random(1))
        work(settings, fleet, "b")
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=30) as told:
            assert told.status == 200
        for command in COMMANDS:
            done = cli(settings, *command)
            assert done.returncode in {0, 1}, (command, done.stderr[-2_000:])
            assert "Traceback" not in done.stderr, (command, done.stderr[-2_000:])
        assert set(fleet.terminate().values()) == {0}
        for member in members:
            member.start()
        fleet.wait_up()
        work(settings, fleet, "c")
        assert set(fleet.terminate().values()) == {0}
    for member in members:
        assert member.said("Traceback") == 0, member.tail()
