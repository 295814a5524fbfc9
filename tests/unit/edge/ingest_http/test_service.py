"""The service of the event API: bounds, outages, health, and its end."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from aiohttp import web

from streams.edge.ingest.http import IngestService
from streams.edge.publisher import Publisher
from streams.settings import Settings
from tests.support.eventually import eventually
from tests.support.ingest_edge import CODEC, EVENT


class Answers:
    """What metrics would be told."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def answered(self, status: int, events: int, seconds: float) -> None:
        assert seconds >= 0
        self.seen.append((status, events))

    def webhook_refused(self, provider: str, reason: str) -> None:
        raise AssertionError((provider, reason))

    def webhook_taken(self, provider: str, normalized_s: float, appended_s: float) -> None:
        raise AssertionError((provider, normalized_s, appended_s))


# ---------------------------------------------------------------------- bounds and outages
async def test_a_request_beyond_the_bound_is_told_to_come_again(
    settings: Settings, publisher: Publisher
) -> None:
    answers = Answers()
    service = IngestService(settings, publisher, CODEC, in_flight_max=1, observer=answers)
    await service.start()
    address = service.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(address[0], int(address[1]))
    body = json.dumps(EVENT).encode()
    head = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body[:5])
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        while service.door.in_flight == 0:
            await client.get("/healthz")
        refused = await client.post("/v1/events", json=EVENT)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        writer.write(body[5:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 202")
        assert (await client.post("/v1/events", json=EVENT)).status_code == 202
    assert answers.seen == [(503, 0), (202, 1), (202, 1)]
    writer.close()
    await service.stop()


async def test_without_an_ack_every_event_s_fate_is_told(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = Publisher(settings, name="stopped")
    service = IngestService(settings, stopped, CODEC)
    await service.start()
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        single = await client.post("/v1/events", json={**EVENT, "id": "a"})
        batch = await client.post("/v1/events", json=[{**EVENT, "id": "b"}, EVENT])
    await service.stop()
    assert (single.status_code, single.headers["Retry-After"]) == (503, "1")
    assert single.json() == {"event_id": "a", "error": "publisher stopped is not running"}
    assert batch.status_code == 503
    assert [set(each) for each in batch.json()["events"]] == [{"event_id", "error"}] * 2
    assert batch.json()["events"][0]["event_id"] == "b"
    told = [vars(each) for each in caplog.records if each.message == "events_not_appended"]
    assert [(each["events"], each["of"]) for each in told] == [(1, 1), (2, 2)]
    assert {each["reason"] for each in told} == {"publisher stopped is not running"}


# ---------------------------------------------------------------------- health and life
async def test_liveness_does_not_depend_on_the_broker_and_readiness_does() -> None:
    nowhere = Settings(bootstrap="127.0.0.1:1", http_port=0)
    service = IngestService(nowhere, Publisher(nowhere, name="test"), CODEC)
    await service.start()
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as client:
        assert (await client.get("/healthz")).status_code == 200
        response = await client.get("/readyz")
        assert response.status_code == 503
        assert response.json()["error"].startswith("the broker does not answer")
    await service.stop()


async def test_it_is_ready_once_the_broker_answers_and_the_registry_is_read(
    client: httpx.AsyncClient, publisher: Publisher
) -> None:
    value = CODEC.encode("revision_broadcast", {"revision": 0})
    await publisher.append(
        "triggers.registry", kind="revision_broadcast", key=b"", value=value, partition=0
    )
    response = await client.get("/readyz")
    while response.status_code == 503:
        assert "webhook path" in response.json()["error"]
        response = await client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})


async def test_stopping_answers_what_is_under_way_and_can_be_repeated(
    settings: Settings, publisher: Publisher
) -> None:
    service = IngestService(settings, publisher, CODEC)
    await service.start()
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        asked = asyncio.create_task(client.post("/v1/events", json=EVENT))
        await eventually(lambda: service.door.in_flight > 0 or asked.done(), "the request")
        await service.stop()
        assert (await asked).status_code == 202
        with pytest.raises(httpx.ConnectError):
            await client.get("/healthz")
    await service.stop()


async def test_further_routes_are_served_beside(settings: Settings, publisher: Publisher) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="more")

    service = IngestService(settings, publisher, CODEC, routes=[web.get("/more", answer)])
    await service.start()
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        assert (await client.get("/more")).text == "more"
    await service.stop()
