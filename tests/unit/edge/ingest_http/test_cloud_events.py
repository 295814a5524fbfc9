"""CloudEvents over HTTP, in every mode."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from streams.settings import Settings
from tests.support.ingest_edge import envelope

CLOUD_EVENT = {"specversion": "1.0", "id": "17", "source": "/orders", "type": "order.paid"}


@pytest.mark.parametrize("mode", ["structured", "batch", "binary"])
async def test_cloud_events_are_taken_in_every_mode(
    client: httpx.AsyncClient, settings: Settings, mode: str
) -> None:
    sent = {name: text for name, text in CLOUD_EVENT.items() if mode == "binary"}
    headers = {f"ce-{name}": text for name, text in sent.items()}
    trace = f"00-{'c' * 32}-{'d' * 16}-01"
    body: Any = {**CLOUD_EVENT, "data": {"amount": 30}, "traceparent": trace}
    if mode == "structured":
        headers["Content-Type"] = "application/cloudevents+json; charset=utf-8"
    elif mode == "batch":
        headers["Content-Type"] = "application/cloudevents-batch+json"
        body = [body]
    else:
        headers |= {"Content-Type": "application/json", "ce-traceparent": trace}
        body = body["data"]
    response = await client.post("/v1/events", content=json.dumps(body), headers=headers)
    assert response.status_code == 202
    answered = response.json()["events"][0] if mode == "batch" else response.json()
    _, key, value = envelope(settings, answered["position"])
    assert key == b"webhook:/orders 17"
    assert (value["event"]["kind"], value["event"]["trace_id"]) == ("order.paid", "c" * 32)
    assert json.loads(value["event"]["provider_payload"]) == {"amount": 30}


async def test_binary_data_of_any_type_is_taken(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    headers = {f"ce-{name}": text for name, text in CLOUD_EVENT.items()}
    headers["Content-Type"] = "application/octet-stream"
    response = await client.post("/v1/events", content=b"\xff\x00", headers=headers)
    _, _, value = envelope(settings, response.json()["position"])
    assert value["event"]["raw_body"] == b"\xff\x00"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ce-subject", "headers: expected UTF-8"),
        ("ce-type", "type: expected UTF-8; headers: expected UTF-8"),
        ("Content-Type", "headers: expected UTF-8"),
    ],
)
async def test_a_header_of_a_cloud_event_that_is_no_utf_8_is_refused_and_no_bug(
    client: httpx.AsyncClient, name: str, problem: str
) -> None:
    sent = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    headers = {key.encode(): value.encode() for key, value in sent.items()} | {
        name.encode(): b"a/\x80"
    }
    response = await client.post("/v1/events", content=b"x", headers=headers)
    assert (response.status_code, response.json()["error"]) == (400, problem)


async def test_a_cloud_event_has_its_own_key(client: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/cloudevents+json", "Idempotency-Key": "k"}
    response = await client.post("/v1/events", content=json.dumps(CLOUD_EVENT), headers=headers)
    assert response.status_code == 400
    assert response.json()["error"].startswith("CloudEvents are known by source and id")
