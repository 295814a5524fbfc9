"""What the event API refuses, and how it says so."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.support.ingest_edge import BODY_BYTES_MAX, EVENT


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
    ("method", "path", "status", "says"),
    [
        ("GET", "/v1/events", 405, "GET is not taken at '/v1/events', expected OPTIONS, POST"),
        ("POST", "/healthz", 405, "POST is not taken at '/healthz', expected GET"),
        ("POST", "/v1/nothing", 404, "nothing is at '/v1/nothing': events go to /v1/events, web"),
        ("GET", "/", 404, "nothing is at '/': "),
        ("GET", "/" + "x" * 1_000, 404, "nothing is at '/xxxxx"),
    ],
)
async def test_other_paths_and_methods_are_refused_as_json_with_what_is_taken(
    client: httpx.AsyncClient, method: str, path: str, status: int, says: str
) -> None:
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"].startswith(says)
    assert response.json()["problems"] == [response.json()["error"]]
    assert len(response.content) < 1_000
