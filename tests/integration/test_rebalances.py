"""Members come and go under load: every record is folded once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from streams.kafka import make_producer
from tests.support.broker import Kafka
from tests.support.live_toy import PARTITIONS, LiveToy
from tests.support.toy import command

pytestmark = [pytest.mark.broker]

ROUNDS = 3
BURST = 40
EVERY_S = 0.005
UNACKED_MAX = 20_000
"""Less than the client keeps for a broker that stands still for a while."""


@asynccontextmanager
async def load(live: LiveToy) -> AsyncIterator[None]:
    """Small bursts to every partition for as long as the block lasts."""
    producer = make_producer(live.settings, linger_ms=0)
    encode = live.codec.encoder("toy_command")
    over = asyncio.Event()

    async def append() -> None:
        for number in count():
            if over.is_set():
                return
            if len(producer) > UNACKED_MAX:
                await asyncio.to_thread(producer.flush, 60)
            value = encode(command("put", f"p:{number % 100}", text=str(number)))
            for place in range(BURST):
                partition = place % PARTITIONS
                producer.produce(
                    live.mailbox, value, b"k", partition, headers=[("kind", b"command")]
                )
            producer.poll(0)
            await asyncio.sleep(EVERY_S)  # the load's rate

    appending = asyncio.create_task(append())
    try:
        yield
    finally:
        over.set()
        await appending
        assert await asyncio.to_thread(producer.flush, 60) == 0


async def test_members_that_come_and_go_lose_no_record(kafka: Kafka) -> None:
    live = LiveToy(kafka.settings)
    async with live.member():
        async with load(live):
            for _ in range(ROUNDS):
                async with live.member():
                    await asyncio.sleep(0.5)  # both fold for a while
        await live.everything_folded()
    live.assert_every_record_was_folded_once()
