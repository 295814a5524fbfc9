"""What a worker reads of its partitions, as they come, go and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from streams.edge.turns.kafka.feed import Feed, Fetched
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.eventually import eventually
from tests.support.mock_cluster import mock_cluster

TOPIC = "turns"


@pytest.fixture
def settings() -> Iterator[Settings]:
    with mock_cluster() as bootstrap:
        yield Settings(bootstrap=bootstrap)


def append(settings: Settings, count: int) -> None:
    producer = make_producer(settings)
    for number in range(count):
        producer.produce(TOPIC, f"{number}", "k", 0)
    assert producer.flush(30) == 0


async def test_a_place_that_was_paused_when_it_was_dropped_is_read_when_it_comes_back(
    settings: Settings,
) -> None:
    await asyncio.to_thread(append, settings, 10)
    found: list[Fetched] = []
    failed: list[BaseException] = []

    def offsets(ticket: int) -> list[int]:
        assert not failed
        return [each.offset for each in found if each.ticket == ticket]

    feed = Feed(
        settings, name="test", isolation="read_committed", take=found.extend, fail=failed.append
    )
    feed.start()
    try:
        feed.read({(TOPIC, 0): 0}, 1)
        await eventually(lambda: offsets(1) == [*range(10)], "all records")
        feed.pause((TOPIC, 0), 1, paused=True)
        feed.drop([(TOPIC, 0)], 1)
        feed.read({(TOPIC, 0): 4}, 2)
        await eventually(lambda: offsets(2) == [*range(4, 10)], "the records from the new offset")
    finally:
        await feed.stop()
