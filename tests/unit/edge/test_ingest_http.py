import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from aiohttp import web

from streams.codec import Codec
from streams.core.record import Position
from streams.edge.ingest.http import IngestService
from streams.edge.publisher import Publisher
from streams.settings import Settings
from tests.support.eventually import eventually
from tests.support.mock_cluster import mock_cluster, read

EVENT = {"provider": "github", "kind": "push", "payload": {"ref": "main"}}
BODY_BYTES_MAX = 2_000
CODEC = Codec()


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


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    with mock_cluster() as bootstrap:
        yield Settings(bootstrap=bootstrap, http_port=0, http_max_body_bytes=BODY_BYTES_MAX)


@pytest_asyncio.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    publisher = Publisher(settings, name="test")
    await publisher.start()
    yield publisher
    await publisher.stop()


@pytest_asyncio.fixture
async def service(settings: Settings, publisher: Publisher) -> AsyncIterator[IngestService]:
    service = IngestService(settings, publisher, CODEC)
    await service.start()
    yield service
    await service.stop()


@pytest_asyncio.fixture
async def client(service: IngestService) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=service.url) as client:
        yield client


def envelope(settings: Settings, position: str) -> tuple[dict[str, str], bytes, dict[str, Any]]:
    """The headers, key and value of one envelope."""
    at = Position.parse(position)
    record = read(settings, at.topic, at.partition, at.offset + 1)[-1]
    headers: dict[str, str] = {}
    for name, content in record.headers() or []:
        assert isinstance(content, bytes)
        headers[name] = content.decode()
    key, value = record.key(), record.value()
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    return headers, key, CODEC.decode(value)[1]


# ---------------------------------------------------------------------- accepted
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


# ---------------------------------------------------------------------- refused
async def test_a_wrong_event_is_refused_with_everything_that_is_wrong(
    client: httpx.AsyncClient,
) -> None:
    response = await client.post("/v1/events", json={"kind": "", "x": 1})
    assert response.status_code == 400
    assert len(response.json()["problems"]) == 3
    assert response.json()["error"] == "; ".join(response.json()["problems"])


async def test_one_wrong_event_refuses_its_batch(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/events", json=[EVENT, {"provider": "github"}])
    assert response.status_code == 400
    [problem] = response.json()["problems"]
    assert problem.startswith("[1].kind is missing")


@pytest.mark.parametrize(
    ("event", "key", "problem"),
    [
        ([EVENT], "k", "Idempotency-Key is for a single event"),
        ({**EVENT, "dedupe_key": "other"}, "k", "Idempotency-Key and dedupe_key differ"),
        (EVENT, "", "Idempotency-Key: expected 1 to 1000 printable characters"),
        (EVENT, "k" * 1_001, "Idempotency-Key: expected 1 to 1000 printable characters"),
    ],
)
async def test_an_idempotency_key_that_cannot_be_meant_is_refused(
    client: httpx.AsyncClient, event: object, key: str, problem: str
) -> None:
    response = await client.post("/v1/events", json=event, headers={"Idempotency-Key": key})
    assert response.status_code == 400
    assert response.json()["error"].startswith(problem)


@pytest.mark.parametrize(
    ("content_type", "problem"),
    [
        ("text/plain", "Content-Type is text/plain, expected application/json"),
        ("application/x-www-form-urlencoded", "Content-Type is application/x-www-form-urlencoded"),
        ("application/json; charset=latin-1", "charset is latin-1, expected utf-8"),
        ("application/json" + ";a" * 1_500, "Content-Type has more than 256 characters"),
    ],
)
async def test_what_is_no_json_is_refused(
    client: httpx.AsyncClient, content_type: str, problem: str
) -> None:
    sent = {"Content-Type": content_type}
    response = await client.post("/v1/events", content=json.dumps(EVENT), headers=sent)
    assert response.status_code == 415
    assert response.json()["error"].startswith(problem)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_is_not_compressed_as_it_says_is_refused_and_no_bug(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, encoding: str
) -> None:
    sent = {"Content-Type": "application/json", "Content-Encoding": encoding}
    for _ in range(2):
        response = await client.post("/v1/events", content=b"no such thing" * 10, headers=sent)
        assert response.status_code == 400
        assert response.json()["error"].startswith(
            f"the body cannot be read, with Content-Encoding {encoding}: "
        )
    assert (await client.post("/v1/events", json=EVENT)).status_code == 202
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


async def chunked(body: bytes) -> AsyncIterator[bytes]:
    """A body whose length is not said beforehand."""
    yield body


@pytest.mark.parametrize("way", ["length", "chunked", "compressed"])
async def test_a_body_over_the_limit_is_refused_whichever_way_it_comes(
    client: httpx.AsyncClient, way: str
) -> None:
    fits = json.dumps({**EVENT, "payload": ""}).encode()
    fits = fits.replace(b'""', b'"' + b"x" * (BODY_BYTES_MAX - len(fits)) + b'"')
    assert len(fits) == BODY_BYTES_MAX
    sent = {"Content-Type": "application/json"}
    if way == "compressed":
        sent["Content-Encoding"] = "gzip"

    async def post(body: bytes) -> int:
        content: Any = body
        if way == "chunked":
            content = chunked(body)
        if way == "compressed":
            content = gzip.compress(body)
        response = await client.post("/v1/events", content=content, headers=sent)
        return response.status_code

    assert await post(fits) == 202
    assert await post(fits + b" ") == 413


async def test_headers_over_the_limit_are_refused(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/events", json=EVENT, headers={"X-Long": "x" * 10_000})
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/events", 405), ("POST", "/v1/nothing", 404), ("GET", "/", 404)],
)
async def test_other_paths_and_methods_are_refused_as_json(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]


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
    async with httpx.AsyncClient(base_url=service.url) as client:
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


async def test_without_an_ack_every_event_s_fate_is_told(settings: Settings) -> None:
    stopped = Publisher(settings, name="stopped")
    service = IngestService(settings, stopped, CODEC)
    await service.start()
    async with httpx.AsyncClient(base_url=service.url) as client:
        single = await client.post("/v1/events", json={**EVENT, "id": "a"})
        batch = await client.post("/v1/events", json=[{**EVENT, "id": "b"}, EVENT])
    await service.stop()
    assert (single.status_code, single.headers["Retry-After"]) == (503, "1")
    assert single.json() == {"event_id": "a", "error": "publisher stopped is not running"}
    assert batch.status_code == 503
    assert [set(each) for each in batch.json()["events"]] == [{"event_id", "error"}] * 2
    assert batch.json()["events"][0]["event_id"] == "b"


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
    async with httpx.AsyncClient(base_url=service.url) as client:
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
    async with httpx.AsyncClient(base_url=service.url) as client:
        assert (await client.get("/more")).text == "more"
    await service.stop()
