"""The event API, on a broker in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio

from streams.edge.ingest.http import IngestService
from streams.edge.publisher import Publisher
from streams.settings import Settings
from tests.support.ingest_edge import BODY_BYTES_MAX, CODEC
from tests.support.mock_cluster import mock_cluster


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
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        yield client
