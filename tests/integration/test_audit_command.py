"""`harn audit verify` as operators and scripts meet it: what it prints, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from streams.codec import Codec
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.words import TURNS
from streams.engine import START
from streams.kafka import make_consumer, make_producer
from streams.settings import Settings
from tests.support.app_cluster import ENVELOPES, cli, envelope, event, provision, settings_for_app
from tests.support.broker import PrivateBroker

pytestmark = pytest.mark.broker

_CODEC = Codec()


def append(settings: Settings, topic: str, key: bytes, value: bytes, **headers: bytes) -> None:
    producer = make_producer(settings)
    producer.produce(topic, value, key, partition=0, headers=list(headers.items()))
    assert producer.flush(30) == 0


def entry(fold: str, *, records: int) -> bytes:
    said = {
        **START.as_row(),
        "stage": fold.partition("@")[0],
        "fold": fold,
        "partition": 0,
        "seq": 1,
        "first_offset": 0,
        "next_offset": records,
        "records": records,
        "outputs": 0,
        "rows": 0,
        "skipped": [],
    }
    return _CODEC.encode("journal_entry", said)


def test_the_command_says_what_it_found_and_exits_accordingly(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)

    missing = cli(settings, "audit", "verify")
    assert missing.returncode == 3
    assert "topic audit.journal does not exist" in missing.stderr

    provision(settings)
    clean = cli(settings, "audit", "verify")
    assert clean.returncode == 0, clean.stdout + clean.stderr
    assert clean.stdout.splitlines()[-1].startswith("verified: 0 records of 13 stage partitions")

    unknown = cli(settings, "audit", "verify", "--stage", "outbox")
    assert unknown.returncode == 2
    assert "stage is 'outbox', expected one of registry, inbox, dispatch" in unknown.stderr

    append(settings, ENVELOPES, b"k", envelope(event(1)), kind=b"event_ingested")
    body = entry("inbox@99", records=1)
    append(settings, "audit.journal", b"inbox/0", body, kind=b"journal_entry")
    unjudged = cli(settings, "audit", "verify", "--stage", "inbox", "--partition", "0")
    assert unjudged.returncode == 2
    assert "not judged: inbox/0 0..1: folded by inbox@99" in unjudged.stdout
    assert f"{ENVELOPES}/0 offsets 0 to 1 cannot be judged by inbox" in unjudged.stderr

    forged = {"kind": b"dispatch_started", "cause": b"trigger.dispatches/3/7/0"}
    append(settings, "trigger.outbox", b"k", b"forged", **forged, fold=b"dispatch@1")
    diverges = cli(settings, "audit", "verify", "--json", "--processes", "2")
    assert diverges.returncode == 1
    assert "replay diverges at trigger.outbox/0/0" in diverges.stderr
    said = json.loads(diverges.stdout)
    assert said["verdict"] == "diverges"
    found = [each["divergence"] for each in said["partitions"] if each["divergence"]]
    assert [(each["kind"], each["position"]) for each in found] == [
        ("unexpected_output", "trigger.outbox/0/0")
    ]


def test_turns_are_judged_by_their_invariants(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    lost = AgentTurnEnvelope(job_id="job-1", session_id="sess-1", enqueued_at_ms=1)
    append(settings, TURNS, b"session:sess-1", lost.json_bytes(), kind=b"agent_turn")
    waits = cli(settings, "audit", "verify")
    assert waits.returncode == 0, waits.stdout + waits.stderr

    explained = cli(settings, "audit", "explain", "job-1")
    assert explained.returncode == 0, explained.stderr
    assert "job-1 of session sess-1 waiting agent_turns/0/0" in explained.stdout
    nobody = cli(settings, "audit", "explain", "job-2")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "the log has nothing about job job-2" in nobody.stderr

    consumer = make_consumer(settings, group_id="agent-dispatch")
    consumer.commit(offsets=[TopicPartition(TURNS, 0, 1)], asynchronous=False)
    consumer.close()
    diverges = cli(settings, "audit", "verify")
    assert diverges.returncode == 1, diverges.stderr
    told = "agent_turns/0/0: it is below the group's offset, 1, and has no end"
    assert told in diverges.stdout.splitlines()
    assert cli(settings, "audit", "verify", "--stage", "inbox").returncode == 0

    invariants = cli(settings, "audit", "invariants", "--json")
    assert invariants.returncode == 1, invariants.stderr
    [found] = [each for each in json.loads(invariants.stdout)["turns"] if each["turns"]]
    assert found == {
        "partition": 0,
        "turns": 1,
        "words": 0,
        "dead_letters": 0,
        "committed": 1,
        "notes": [],
        "violations": [{"position": "agent_turns/0/0", "what": told.partition(": ")[2]}],
        "violations_count": 1,
    }
