"""A service that takes webhooks, on a broker in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from streams.edge.ingest.http import IngestService
from streams.edge.publisher import Publisher
from streams.settings import Settings
from streams.testing import binding
from tests.support.mock_cluster import mock_cluster
from tests.support.registry_records import CODEC
from tests.support.webhook_edge import (
    BODY_BYTES_MAX,
    SECRET,
    Ingest,
    Seen,
)
from tests.support.webhooks import with_path


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with mock_cluster() as address:
        yield address


@pytest_asyncio.fixture
async def start(bootstrap: str, tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    started: list[Ingest] = []

    async def start_one(**changes: Any) -> Ingest:
        secrets = tmp_path / "secrets"
        secrets.mkdir(exist_ok=True)
        (secrets / "github.hook").write_bytes(SECRET)
        settings = Settings(
            bootstrap=bootstrap,
            http_port=0,
            http_max_body_bytes=BODY_BYTES_MAX,
            secrets_dir=secrets,
        )
        settings = replace(settings, **changes)
        publisher = Publisher(settings, name="test")
        await publisher.start()
        seen = Seen()
        service = IngestService(settings, publisher, CODEC, observer=seen)
        ingest = Ingest(settings, publisher, service)
        ingest.seen = seen
        await service.start()
        started.append(ingest)
        return ingest

    yield start_one
    for ingest in started:
        await ingest.service.stop()
        await ingest.publisher.stop()


@pytest_asyncio.fixture
async def ingest(start: Callable[..., Any]) -> Ingest:
    found: Ingest = await start()
    await found.apply(with_path(binding("a"), "/hooks/github"))
    return found


@pytest_asyncio.fixture
async def client(ingest: Ingest) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=ingest.service.url, timeout=60) as client:
        await ingest.serves(client, "hooks/github", 401)
        ingest.seen.refusals.clear()
        ingest.seen.answers.clear()
        yield client
