"""Events over HTTP on a real broker: through to their handlers, and while the broker is away."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from streams.app import Application, Plan
from streams.codec import Codec
from streams.edge.ingest.http import IngestService
from streams.edge.publisher import Publisher
from streams.roles import ALL_ROLES
from streams.settings import Settings
from tests.support.app_cluster import (
    ENVELOPES,
    apply,
    assert_audit_is_clean,
    assert_one_outcome_each,
    cli,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.eventually import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

DELIVERIES = Path(__file__).parents[1] / "data" / "github-webhooks.jsonl.gz"
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
    return event.kind
"""


def succeeded(settings: Settings) -> Counter[str]:
    found = read(settings, "trigger.outbox", {"dispatch_succeeded"})
    return Counter(entry.value["event_id"] for entry in found)


@pytest.mark.soak
async def test_real_deliveries_sent_twice_are_dispatched_once_each(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    application = Application(Plan(settings=settings, roles=ALL_ROLES, manifest=manifest))
    await application.start()
    try:
        await asyncio.to_thread(apply, settings, manifest)
        arguments = ("trigger", "emit", "--file", str(DELIVERIES), "--json")
        first = await asyncio.to_thread(cli, settings, *arguments)
        second = await asyncio.to_thread(cli, settings, *arguments)
        assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
        ids = [json.loads(line)["event_id"] for line in first.stdout.splitlines()]
        assert len(ids) == 165
        await eventually(lambda: len(succeeded(settings)) == 165, "165 outcomes")
        dropped = read(settings, "triggers.lifecycle", {"EventDeduplicated"})
        assert sorted(entry.value["first_event_id"] for entry in dropped) == sorted(ids)
    finally:
        await application.stop()
    await asyncio.to_thread(assert_one_outcome_each, settings, ids)
    await asyncio.to_thread(assert_audit_is_clean, settings)


async def post(client: httpx.AsyncClient, body: Any, **headers: str) -> httpx.Response:
    return await client.post("/v1/events", json=body, headers=headers)


async def test_single_events_and_batches_are_answered_from_the_log(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    lines = gzip.decompress(DELIVERIES.read_bytes()).splitlines()
    events = [
        {"provider": "github", "kind": line["event"], "payload": line["payload"]}
        for line in map(json.loads, lines)
    ]
    publisher = Publisher(settings, name="test")
    await publisher.start()
    service = IngestService(settings, publisher, Codec())
    await service.start()
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        singles = await asyncio.gather(*(post(client, event) for event in events[:50]))
        batch = await post(client, {"events": events[50:65]})
        assert {response.status_code for response in singles} == {202}
        assert batch.status_code == 202
        answered = [response.json() for response in singles] + batch.json()["events"]
    await service.stop()
    await publisher.stop()
    found = {
        f"{entry.topic}/{entry.partition}/{entry.offset}": entry.value["event"]
        for entry in read(settings, ENVELOPES)
    }
    assert len(found) == len(answered) == 65
    for event, answer in zip(events, answered, strict=False):
        envelope = found[answer["position"]]
        assert envelope["id"] == answer["event_id"]
        assert json.loads(envelope["provider_payload"]) == event["payload"]


@pytest.mark.chaos
@pytest.mark.soak
async def test_a_broker_that_goes_away_and_comes_back(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    """Without it every answer is 503 and nothing is promised; with it again, all is as before."""
    kafka = await asyncio.to_thread(private_broker.start)
    settings = replace(settings_for_app(kafka, tmp_path), drain_ms=1_000)
    await asyncio.to_thread(provision, settings)
    publisher = Publisher(settings, name="test")
    await publisher.start()
    service = IngestService(settings, publisher, Codec())
    await service.start()
    event = {"provider": "github", "kind": "push"}
    async with httpx.AsyncClient(base_url=service.url, timeout=90) as client:
        assert (await post(client, event)).status_code == 202
        await asyncio.to_thread(private_broker.kill)
        lost = asyncio.create_task(post(client, {**event, "id": "lost-or-not"}))
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        refused = await lost
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert refused.json()["event_id"] == "lost-or-not"
        await asyncio.to_thread(private_broker.start)
        repeated = await post(client, {**event, "id": "lost-or-not"})
        assert repeated.status_code == 202

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        async with asyncio.timeout(60):
            while not await ready():
                pass
    await service.stop()
    await publisher.stop()
