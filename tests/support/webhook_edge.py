"""A service that takes webhooks, the registry that it follows, and what its metrics are told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from streams.core.record import Position
from streams.edge.ingest.http import IngestService
from streams.edge.publisher import Publisher
from streams.settings import Settings
from tests.support.mock_cluster import read
from tests.support.registry_records import CODEC, Registry
from tests.support.webhooks import signed

SECRET = b"It's a Secret"
BODY = json.dumps({"action": "opened", "issue": {"number": 7}}).encode()
BODY_BYTES_MAX = 2_000
REGISTRY = "triggers.registry"
JSON = {"Content-Type": "application/json"}


class Seen:
    """What metrics would be told."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, int]] = []
        self.refusals: list[tuple[str, str]] = []
        self.taken: list[str] = []

    def answered(self, status: int, events: int, seconds: float) -> None:
        assert seconds >= 0
        self.answers.append((status, events))

    def webhook_refused(self, provider: str, reason: str) -> None:
        self.refusals.append((provider, reason))

    def webhook_taken(self, provider: str, normalized_s: float, appended_s: float) -> None:
        assert 0 <= normalized_s <= appended_s
        self.taken.append(provider)


class Ingest:
    """A running service with a registry's log that the test writes."""

    def __init__(self, settings: Settings, publisher: Publisher, service: IngestService) -> None:
        self.settings = settings
        self.publisher = publisher
        self.service = service
        self.seen = Seen()
        self.log = Registry()
        self._written = 0

    async def write(self) -> None:
        """Append what the registry's log got new."""
        for record in self.log.records[self._written :]:
            assert record.value is not None
            kind = dict(record.headers)["kind"].decode()
            await self.publisher.append(
                REGISTRY, kind=kind, key=b"k", value=record.value, partition=0
            )
        self._written = len(self.log.records)

    async def apply(self, *bindings: Any) -> None:
        """Put bindings in force, broadcast."""
        revision = self.log.view().revision
        self.log.apply(*bindings, revision=revision)
        self.log.add("revision_broadcast", {"revision": revision + 1})
        await self.write()

    async def serves(self, client: httpx.AsyncClient, path: str, status: int) -> None:
        """Wait until an unsigned delivery is answered like this."""
        while (await post(client, path, BODY, {})).status_code != status:
            pass


async def post(
    client: httpx.AsyncClient, path: str, body: bytes, headers: Mapping[str, str | bytes]
) -> httpx.Response:
    sent: Any = {**JSON, **headers}
    return await client.post(f"/webhooks/{path}", content=body, headers=sent)


def github(body: bytes = BODY, secret: bytes = SECRET, delivery: str = "d1") -> dict[str, str]:
    return signed("github", body, secret, delivery=delivery)


def envelope(ingest: Ingest, position: str) -> tuple[bytes, dict[str, Any]]:
    """The key and value of one envelope."""
    at = Position.parse(position)
    record = read(ingest.settings, at.topic, at.partition, at.offset + 1)[-1]
    key, value = record.key(), record.value()
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    return key, CODEC.decode(value)[1]
