import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from streams.codec import Codec
from streams.core.record import Position
from streams.edge.canceller import GROUP, KIND, REQUESTS, Canceller
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.errors import BrokerError, TopologyError
from streams.settings import Settings
from tests.support.eventually import eventually
from tests.support.mock_cluster import mock_cluster

DISPATCHES = "trigger.dispatches"
PARTITIONS = 4
CODEC = Codec()


@pytest.fixture
def settings() -> Iterator[Settings]:
    with mock_cluster() as bootstrap:
        yield Settings(bootstrap=bootstrap, partitions=PARTITIONS)


class Refusing(Publisher):
    """A publisher that refuses as many appends to dispatches as it is told."""

    refuse = 0
    retryable = True

    def append_soon(self, topic: str, **record: Any) -> asyncio.Future[Position]:
        if topic == DISPATCHES and self.refuse:
            self.refuse -= 1
            refused: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
            refused.set_exception(BrokerError(f"{topic}: refused", retryable=self.retryable))
            return refused
        return super().append_soon(topic, **record)


@pytest_asyncio.fixture
async def publisher(settings: Settings) -> AsyncIterator[Refusing]:
    publisher = Refusing(settings, name="test")
    await publisher.start()
    yield publisher
    await publisher.stop()


def request(event_id: str) -> bytes:
    return CODEC.encode(
        KIND,
        {
            "binding_key": "triage@v1",
            "event_id": event_id,
            "requested_at": "2026-01-01T00:00:00.000Z",
            "requested_by": "ada",
            "audit_id": None,
        },
    )


async def ask(publisher: Publisher, value: bytes, kind: str = KIND) -> Position:
    return await publisher.append(REQUESTS, kind=kind, value=value, key=b"k")


def copies(settings: Settings, partition: int) -> list[ReadRecord]:
    with TopicReader(settings, DISPATCHES) as reader:
        reader.start_at({partition: 0})
        records: list[ReadRecord] = []
        while not reader.at_end:
            records += reader.read(1)
        return records


def events(settings: Settings) -> list[set[str]]:
    """Ids of the events whose requests each dispatch partition has."""
    try:
        return [
            {CODEC.decode(each.value or b"")[1]["event_id"] for each in copies(settings, partition)}
            for partition in range(PARTITIONS)
        ]
    except TopologyError:  # the cluster in memory makes a topic with its first record
        return []


async def until_copied(settings: Settings, *ids: str) -> None:
    await eventually(lambda: events(settings) == [set(ids)] * PARTITIONS, f"copies of {ids}")


async def test_every_dispatch_partition_gets_every_request_once_and_where_it_came_from(
    settings: Settings, publisher: Refusing
) -> None:
    position = await ask(publisher, request("e1"))
    canceller = Canceller(settings, publisher, CODEC)
    await canceller.start()
    await until_copied(settings, "e1")
    await ask(publisher, request("e2"))
    await until_copied(settings, "e1", "e2")
    await canceller.stop()
    await canceller.stop()
    [first, second] = copies(settings, 3)
    assert first.value == request("e1")
    assert first.headers == [("kind", KIND.encode()), ("cause", str(position).encode())]
    assert second.value == request("e2")


async def test_a_successor_goes_on_where_the_other_one_committed(
    settings: Settings, publisher: Refusing
) -> None:
    await ask(publisher, request("e1"))
    first = Canceller(settings, publisher, CODEC)
    await first.start()
    await until_copied(settings, "e1")
    await first.stop()
    await ask(publisher, request("e2"))
    second = Canceller(settings, publisher, CODEC)
    await second.start()
    await until_copied(settings, "e1", "e2")
    await second.stop()
    assert [len(copies(settings, each)) for each in range(PARTITIONS)] == [2] * PARTITIONS
    assert GROUP == "harn.canceller"


async def test_copies_that_fail_are_made_again_and_nothing_is_lost(
    settings: Settings, publisher: Refusing
) -> None:
    publisher.refuse = 6
    await ask(publisher, request("e1"))
    canceller = Canceller(settings, publisher, CODEC)
    await canceller.start()
    await until_copied(settings, "e1")
    await canceller.stop()
    assert publisher.refuse == 0


async def test_a_refusal_for_good_fails_the_service(
    settings: Settings, publisher: Refusing
) -> None:
    publisher.refuse, publisher.retryable = 1, False
    await ask(publisher, request("e1"))
    canceller = Canceller(settings, publisher, CODEC)
    await canceller.start()
    with pytest.raises(BrokerError, match="refused"):
        await asyncio.wait_for(asyncio.shield(canceller.failed), 60)
    await canceller.stop()


async def test_what_is_no_request_is_named_and_passed_over(
    settings: Settings, publisher: Refusing, caplog: pytest.LogCaptureFixture
) -> None:
    garbage = await ask(publisher, b"garbage")
    await ask(publisher, CODEC.encode("tick", {"due_ms": 1}))
    await ask(publisher, b"x" * 10_001)
    await ask(publisher, request("e1"), kind="something")
    canceller = Canceller(settings, publisher, CODEC)
    await canceller.start()
    await until_copied(settings, "e1")
    await canceller.stop()
    refused: list[Any] = [each for each in caplog.records if each.msg == "cancel_request_refused"]
    assert refused[0].position == str(garbage)
    assert [each.reason for each in refused][1:] == [
        "it is a tick, expected a dispatch_cancel_requested",
        "it has 10001 bytes, expected at most 10000",
    ]
