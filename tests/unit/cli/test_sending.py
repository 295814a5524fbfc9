"""What a sender of ours does with each answer of the event API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from streams.cli.sending import send_event
from streams.errors import BrokerError

EVENT = {"provider": "github", "kind": "push"}
NOT_TAKEN = {"event_id": "trigger_evt_1", "error": "no ack came"}


@dataclass
class Ingest:
    """Answers requests in turn, the last answer again and again; keeps what it was sent."""

    answers: list[Callable[[], web.Response]]
    seen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def take(self, request: web.Request) -> web.Response:
        self.seen.append(await request.json())
        return self.answers[min(len(self.seen), len(self.answers)) - 1]()


def busy(said: dict[str, str], *, again_s: str) -> Callable[[], web.Response]:
    return lambda: web.json_response(said, status=503, headers={"Retry-After": again_s})


def taken(event_id: str) -> Callable[[], web.Response]:
    return lambda: web.json_response({"event_id": event_id}, status=202)


@asynccontextmanager
async def sending(ingest: Ingest) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    app = web.Application()
    app.add_routes([web.post("/v1/events", ingest.take)])
    async with TestServer(app) as server, aiohttp.ClientSession() as client:
        yield client, str(server.make_url("/v1/events"))


async def test_what_was_not_taken_is_sent_again_under_the_id_that_the_answer_gave_it() -> None:
    unknown = busy({"error": "512 requests are being answered"}, again_s="0")
    ingest = Ingest([unknown, busy(NOT_TAKEN, again_s="0"), taken("trigger_evt_1")])
    async with sending(ingest) as (client, url):
        assert await send_event(client, url, EVENT, patience_s=60) == "trigger_evt_1"
    assert ingest.seen == [EVENT, EVENT, {**EVENT, "id": "trigger_evt_1"}]


async def test_an_event_that_is_never_taken_is_an_outage_that_says_why() -> None:
    ingest = Ingest([busy(NOT_TAKEN, again_s="3600")])
    async with sending(ingest) as (client, url):
        with pytest.raises(BrokerError, match="has not taken an event within 60 s: no ack came"):
            await send_event(client, url, EVENT, patience_s=60)
    assert ingest.seen == [EVENT]


async def test_a_refusal_is_not_tried_again() -> None:
    ingest = Ingest([lambda: web.json_response({"error": "no provider"}, status=400)])
    async with sending(ingest) as (client, url):
        with pytest.raises(aiohttp.ClientResponseError, match="400"):
            await send_event(client, url, EVENT, patience_s=60)
    assert ingest.seen == [EVENT]
