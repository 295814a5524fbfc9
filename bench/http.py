"""What the event API takes: requests of one event, and events in batches.

Measured on the role `ingest` in a process of its own; the sender takes a part of the same cores.
An answer comes after the broker's ack.
"""

from __future__ import annotations

import asyncio
import time

import aiohttp

from bench.lab import Lab
from bench.row import Row, at_least
from bench.serving import event_json, serving

_REQUESTS = 6_000
_SENDERS = 32
_BATCHES = 300
_BATCH_EVENTS = 100
_BATCH_SENDERS = 8


def measure(lab: Lab) -> list[Row]:
    """Rounds of both in turn."""
    single = event_json()
    batch = b"[" + b",".join([single] * _BATCH_EVENTS) + b"]"
    singles: list[float] = []
    batches: list[float] = []
    with serving(lab) as whole:  # lays out the topics
        whole.process.wait_for("manifest_applied")
    with serving(lab, ["ingest"]) as place:
        url = place.events_url
        for _ in range(lab.rounds):
            singles.append(asyncio.run(_rate(url, single, lab.scaled(_REQUESTS), _SENDERS)))
            rate = asyncio.run(_rate(url, batch, lab.scaled(_BATCHES), _BATCH_SENDERS))
            batches.append(rate * _BATCH_EVENTS)
    return [
        Row("http_single_requests", "requests/s", singles, at_least(1_000)),
        Row("http_events_in_batches", "events/s", batches, at_least(3_000)),
    ]


async def _rate(url: str, body: bytes, count: int, senders: int) -> float:
    """Accepted requests per second, from `senders` that each wait for their answer."""
    left = iter(range(count))
    headers = {"Content-Type": "application/json"}

    async def send(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.post(url, data=body) as answer:
                answer.raise_for_status()
                await answer.read()

    async with aiohttp.ClientSession(headers=headers) as session:
        began_s = time.monotonic()
        await asyncio.gather(*(send(session) for _ in range(senders)))
        return count / (time.monotonic() - began_s)
