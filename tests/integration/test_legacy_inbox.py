"""The legacy inbox on a real broker: copied once, poison kept, nothing copied again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from streams.app import Application, Plan
from streams.edge.sources.legacy import TOPIC
from streams.kafka import make_producer
from streams.roles import ALL_ROLES
from streams.settings import Settings
from tests.support.app_cluster import (
    Entry,
    apply,
    assert_audit_is_clean,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.eventually import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

MANIFEST = """
[[triggers]]
id = "all"
kind = "webhook"
provider = "github"
match = {}
handler = "seen"
"""
HANDLERS = """
async def seen(event):
    return event.payload
"""
EVENTS = 20


def leave_behind(settings: Settings) -> None:
    """Append what a former release wrote: events, one of them twice, a claim, and rubbish."""
    producer = make_producer(settings)
    for number in [*range(EVENTS), 0]:
        event = {
            "id": f"old_{number}",
            "provider": "github",
            "kind": "push",
            "provider_payload": number,
        }
        value = json.dumps({"trigger_id": None, "binding_version": None, "event": event})
        producer.produce(TOPIC, value.encode(), headers=[("kind", b"event_ingested")])
    producer.produce(TOPIC, b'{"binding_id": "all"}', headers=[("kind", b"dedupe_claim")])
    producer.produce(TOPIC, b"rubbish")
    assert producer.flush(30) == 0


def succeeded(settings: Settings) -> Counter[str]:
    found = read(settings, "trigger.outbox", {"dispatch_succeeded"})
    return Counter(entry.value["event_id"] for entry in found)


def quarantined(settings: Settings) -> list[Entry]:
    return read(settings, "trigger.dlq", {"record_quarantined"})


async def test_what_a_former_release_left_is_dispatched_once(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    path = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    plan = Plan(settings=settings, roles=ALL_ROLES, manifest=path)
    before = Application(plan)  # an empty legacy inbox starts nothing
    await before.start()
    try:
        await asyncio.to_thread(apply, settings, path)
    finally:
        await before.stop()
    await asyncio.to_thread(leave_behind, settings)
    expected = Counter(f"old_{number}" for number in range(EVENTS))
    for _ in range(2):  # the second start finds nothing left
        application = Application(plan)
        await application.start()
        try:
            await eventually(lambda: succeeded(settings) == expected, "each old event's outcome")
            await eventually(lambda: bool(quarantined(settings)), "the last one is kept apart")
            [poison] = quarantined(settings)
            assert (poison.value["topic"], poison.value["raw"]) == (TOPIC, b"rubbish")
        finally:
            await application.stop()
    envelopes = read(settings, "trigger.inbox.envelopes", {"event_ingested"})
    assert len(envelopes) == EVENTS + 1
    await asyncio.to_thread(assert_audit_is_clean, settings)
