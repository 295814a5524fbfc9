"""Events over HTTP, into the log."""

from __future__ import annotations

import gzip
import json

import httpx
import pytest

from streams.core.record import Position
from streams.settings import Settings
from tests.support.ingest_edge import EVENT, envelope


async def test_an_accepted_event_is_in_the_log_at_the_answered_position(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    response = await client.post("/v1/events", json={**EVENT, "tenant_id": "acme"})
    assert response.status_code == 202
    assert set(response.json()) == {"event_id", "position"}
    headers, key, value = envelope(settings, response.json()["position"])
    assert value["event"]["id"] == response.json()["event_id"]
    assert key.decode() == value["event"]["id"]
    assert json.loads(value["event"]["provider_payload"]) == {"ref": "main"}
    assert (value["trigger_id"], value["replay_of_event_id"]) == (None, None)
    assert headers["kind"] == "event_ingested"
    assert headers["tenant_id"] == "acme"
    trace_id = headers["traceparent"].split("-")[1]
    assert value["event"]["trace_id"].replace("-", "") == f"trace_{trace_id}"


async def test_repeats_of_one_delivery_meet_in_one_partition(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    event = {**EVENT, "dedupe_key": "delivery-1"}
    positions = [
        Position.parse((await client.post("/v1/events", json=event)).json()["position"])
        for _ in range(3)
    ]
    assert len({position.partition for position in positions}) == 1
    assert envelope(settings, str(positions[0]))[1] == b"github:delivery-1"


async def test_a_sender_s_trace_goes_on(client: httpx.AsyncClient, settings: Settings) -> None:
    sent = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    response = await client.post("/v1/events", json=EVENT, headers=sent)
    headers, _, value = envelope(settings, response.json()["position"])
    assert value["event"]["trace_id"] == "a" * 32
    assert headers["traceparent"].startswith(f"00-{'a' * 32}-")


async def test_an_idempotency_key_is_the_event_s_dedupe_key(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    response = await client.post("/v1/events", json=EVENT, headers={"Idempotency-Key": "once"})
    _, key, value = envelope(settings, response.json()["position"])
    assert (value["event"]["dedupe_key"], key) == ("once", b"github:once")


@pytest.mark.parametrize("as_object", [True, False])
async def test_a_batch_is_accepted_when_all_of_it_is_in_the_log(
    client: httpx.AsyncClient, settings: Settings, as_object: bool
) -> None:
    events = [{**EVENT, "id": f"batch-{as_object}-{number}"} for number in range(5)]
    response = await client.post("/v1/events", json={"events": events} if as_object else events)
    assert response.status_code == 202
    answered = response.json()["events"]
    assert [each["event_id"] for each in answered] == [event["id"] for event in events]
    found = [envelope(settings, each["position"])[2]["event"]["id"] for each in answered]
    assert found == [event["id"] for event in events]


async def test_a_compressed_body_is_taken(client: httpx.AsyncClient) -> None:
    sent = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    body = gzip.compress(json.dumps(EVENT).encode())
    assert (await client.post("/v1/events", content=body, headers=sent)).status_code == 202


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=UTF-8", "application/x+json"]
)
async def test_every_kind_of_json_is_taken(client: httpx.AsyncClient, content_type: str) -> None:
    body, sent = json.dumps(EVENT), {"Content-Type": content_type}
    assert (await client.post("/v1/events", content=body, headers=sent)).status_code == 202
