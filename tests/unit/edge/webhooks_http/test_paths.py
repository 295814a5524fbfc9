"""Which webhook paths are served, and with which secrets, while manifests come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from streams.edge.ingest.http import IngestService
from streams.edge.ingest.webhooks.routes import WebhookRoutes
from streams.edge.publisher import Publisher
from streams.settings import Settings
from streams.testing import binding
from tests.support.registry_records import CODEC
from tests.support.webhook_edge import (
    BODY,
    REGISTRY,
    SECRET,
    Ingest,
    github,
    post,
)
from tests.support.webhooks import with_path


async def test_before_the_registry_is_read_no_path_is_unknown(
    start: Callable[..., Any],
) -> None:
    ingest = await start()
    async with httpx.AsyncClient(base_url=ingest.service.url, timeout=60) as client:
        response = await post(client, "anything", BODY, github())
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")


async def test_paths_come_and_go_with_manifests_once_those_are_broadcast(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    ingest.log.apply(with_path(binding("b"), "new"), revision=1)
    await ingest.write()
    assert (await post(client, "new", BODY, github())).status_code == 404
    ingest.log.add("revision_broadcast", {"revision": 2})
    await ingest.write()
    await ingest.serves(client, "new", 401)
    assert (await post(client, "new", BODY, github())).status_code == 202
    assert (await post(client, "hooks/github", BODY, github())).status_code == 404


async def test_a_secret_that_is_missing_is_told_to_the_operator_and_nobody_else(
    client: httpx.AsyncClient, ingest: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    await ingest.apply(with_path(binding("a"), "p", "github/gone"))
    await ingest.serves(client, "p", 503)
    response = await post(client, "p", BODY, github())
    assert response.headers["Retry-After"] == "1"
    assert "gone" not in response.text
    [line] = [each for each in caplog.records if each.message == "webhook_secret_missing"]
    assert "github.gone cannot be read" in line.__dict__["reason"]
    assert ("github", "secret_missing") in ingest.seen.refusals


async def test_a_secret_may_change_while_it_is_served(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    file = ingest.settings.secrets_dir / "github.hook"
    file.write_bytes(b"new\n" + SECRET)
    await ingest.apply(with_path(binding("a", note="again"), "hooks/github"))

    async def taken(secret: bytes) -> bool:
        answer = await post(client, "hooks/github", BODY, github(secret=secret))
        return answer.status_code == 202

    while not await taken(b"new"):
        pass
    assert await taken(SECRET)


async def test_without_an_ack_a_delivery_is_to_be_sent_again(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    await ingest.publisher.stop()
    response = await post(client, "hooks/github", BODY, github())
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert set(response.json()) == {"event_id", "error"}


async def test_a_follower_that_cannot_go_on_fails_its_service(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = Settings(bootstrap=bootstrap, http_port=0, secrets_dir=tmp_path)
    publisher = Publisher(settings, name="test")
    await publisher.start()
    value = CODEC.encode("revision_broadcast", {"revision": 0})
    await publisher.append(REGISTRY, kind="revision_broadcast", key=b"k", value=value, partition=0)
    service = IngestService(settings, publisher, CODEC)
    broken: Any = None
    routes = WebhookRoutes(settings, broken, service._fail)
    routes.start()
    with pytest.raises(AttributeError):
        await asyncio.wait_for(service.failed, 30)
    await routes.stop()
    await publisher.stop()
