import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from streams.codec import Codec
from streams.core.record import Position
from streams.edge.broadcaster import Broadcaster
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.errors import BrokerError
from streams.settings import Settings
from streams.testing import binding, policy
from tests.support.eventually import eventually
from tests.support.mock_cluster import mock_cluster

REGISTRY = "triggers.registry"
REQUESTS = "worker.requests"
DISPATCHES = "trigger.dispatches"
ENVELOPES = "trigger.inbox.envelopes"
PARTITIONS = 4
CODEC = Codec()


@pytest.fixture
def settings() -> Iterator[Settings]:
    with mock_cluster() as bootstrap:
        yield Settings(bootstrap=bootstrap, partitions=PARTITIONS)


class Recording(Publisher):
    """A publisher that notes what is asked of it and acknowledged, and can refuse on demand."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, name="test")
        self.notes: list[tuple[str, str]] = []
        self.refuse: list[str] = []
        self.retryable = True

    def append_soon(self, topic: str, **record: Any) -> asyncio.Future[Position]:
        if topic in self.refuse:
            self.refuse.remove(topic)
            refused: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
            refused.set_exception(BrokerError(f"{topic}: refused", retryable=self.retryable))
            return refused
        self.notes.append(("asked", topic))
        appended = super().append_soon(topic, **record)
        appended.add_done_callback(lambda _: self.notes.append(("acked", topic)))
        return appended


@pytest_asyncio.fixture
async def publisher(settings: Settings) -> AsyncIterator[Recording]:
    publisher = Recording(settings)
    await publisher.start()
    yield publisher
    await publisher.stop()


def published(revision: int) -> bytes:
    return CODEC.encode(
        "revision_published",
        {
            "revision": revision,
            "namespace": "default",
            "added": [binding(f"trigger-{revision}")],
            "drained": [],
            "policy": policy(),
            "apply_id": f"apply_{revision}",
        },
    )


async def say(publisher: Recording, kind: str, value: bytes) -> None:
    """Append one record to the registry's log."""
    await publisher.append(REGISTRY, kind=kind, value=value, key=b"default", partition=0)
    publisher.notes.clear()


def broadcast(revision: int) -> bytes:
    return CODEC.encode("revision_broadcast", {"revision": revision})


def log(settings: Settings, topic: str, partition: int) -> list[ReadRecord]:
    with TopicReader(settings, topic) as reader:
        reader.start_at({partition: 0})
        records: list[ReadRecord] = []
        while not reader.at_end:
            records += reader.read(1)
        return records


def revisions(settings: Settings, topic: str, partition: int) -> list[int]:
    return [
        CODEC.decode(each.value or b"")[1]["revision"] for each in log(settings, topic, partition)
    ]


def broadcasts(settings: Settings) -> list[int]:
    words = [each for each in log(settings, REGISTRY, 0) if each.kind == "revision_broadcast"]
    said = [CODEC.decode(each.value or b"") for each in words]
    return [value["revision"] for schema, value in said if schema == "revision_broadcast"]


async def until_broadcast(settings: Settings, expected: list[int]) -> None:
    await eventually(lambda: broadcasts(settings) == expected, f"broadcasts {expected}")


@pytest_asyncio.fixture
async def broadcaster(settings: Settings, publisher: Recording) -> AsyncIterator[Broadcaster]:
    broadcaster = Broadcaster(settings, publisher, CODEC)
    yield broadcaster
    await broadcaster.stop()


async def test_every_partition_gets_every_revision_in_order_and_unchanged(
    settings: Settings, publisher: Recording, broadcaster: Broadcaster
) -> None:
    await say(publisher, "revision_published", published(1))
    await broadcaster.start()
    await until_broadcast(settings, [1])
    await say(publisher, "revision_published", published(2))
    await say(publisher, "revision_published", published(3))
    await until_broadcast(settings, [1, 2, 3])
    for topic in (REQUESTS, DISPATCHES, ENVELOPES):
        for partition in range(PARTITIONS):
            assert revisions(settings, topic, partition) == [1, 2, 3]
            [first, *_] = log(settings, topic, partition)
            assert (first.kind, first.value) == ("revision_published", published(1))


async def test_downstream_has_a_revision_before_upstream_is_told(
    settings: Settings, publisher: Recording, broadcaster: Broadcaster
) -> None:
    await say(publisher, "revision_published", published(1))
    await broadcaster.start()
    await until_broadcast(settings, [1])
    in_turn = [
        *[("asked", REQUESTS)] * PARTITIONS,
        *[("acked", REQUESTS)] * PARTITIONS,
        *[("asked", DISPATCHES)] * PARTITIONS,
        *[("acked", DISPATCHES)] * PARTITIONS,
        *[("asked", ENVELOPES)] * PARTITIONS,
        *[("acked", ENVELOPES)] * PARTITIONS,
        ("asked", REGISTRY),
    ]
    assert publisher.notes[: len(in_turn)] == in_turn


async def test_a_new_broadcaster_repeats_the_last_revision_and_goes_on_with_later_ones(
    settings: Settings, publisher: Recording, broadcaster: Broadcaster
) -> None:
    for revision in (1, 2, 3):
        await say(publisher, "revision_published", published(revision))
    await say(publisher, "revision_broadcast", broadcast(1))
    await say(publisher, "revision_broadcast", broadcast(2))
    await broadcaster.start()
    await until_broadcast(settings, [1, 2, 2, 3])
    assert revisions(settings, DISPATCHES, 0) == [2, 3]


async def test_an_append_that_fails_is_repeated_with_its_whole_revision(
    settings: Settings, publisher: Recording, broadcaster: Broadcaster
) -> None:
    await say(publisher, "revision_published", published(1))
    await say(publisher, "revision_published", published(2))
    publisher.refuse = [DISPATCHES, ENVELOPES, REGISTRY]
    await broadcaster.start()
    await until_broadcast(settings, [1, 2])
    assert publisher.refuse == []
    for topic in (REQUESTS, DISPATCHES, ENVELOPES):
        for partition in range(PARTITIONS):
            found = revisions(settings, topic, partition)
            assert found == sorted(found), "a repeat never comes after a later revision"
            assert set(found) == {1, 2}, "none is skipped"


async def test_a_refusal_for_good_fails_the_service(
    settings: Settings, publisher: Recording, broadcaster: Broadcaster
) -> None:
    await say(publisher, "revision_published", published(1))
    publisher.refuse, publisher.retryable = [DISPATCHES], False
    await broadcaster.start()
    with pytest.raises(BrokerError, match="refused"):
        await asyncio.wait_for(asyncio.shield(broadcaster.failed), 60)
    assert broadcasts(settings) == []


async def test_what_is_no_revision_is_passed_over(
    settings: Settings, publisher: Recording, broadcaster: Broadcaster
) -> None:
    await say(publisher, "revision_published", b"garbage")
    await say(publisher, "binding_ended", b"")
    await say(publisher, "revision_published", CODEC.encode("tick", {"due_ms": 1}))
    await say(publisher, "revision_broadcast", published(9))
    await say(publisher, "revision_published", published(1))
    await broadcaster.start()
    await until_broadcast(settings, [1])


async def test_stopping_works_idle_and_twice(
    publisher: Recording, broadcaster: Broadcaster
) -> None:
    await say(publisher, "revision_published", published(1))
    await broadcaster.start()
    await broadcaster.stop()
    await broadcaster.stop()
    assert not broadcaster.failed.done()


async def test_a_revision_that_does_not_follow_is_nobody_s_and_those_that_do_go_on(
    settings: Settings, publisher: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    await say(publisher, "revision_published", published(1))
    for revision in (1 << 40, 3, 0, -1):
        await say(publisher, "revision_published", published(revision))
    await say(publisher, "revision_broadcast", broadcast(1 << 40))
    await say(publisher, "revision_published", published(2))
    broadcaster = Broadcaster(settings, publisher, CODEC)
    await broadcaster.start()
    try:
        await until_broadcast(settings, [1 << 40, 1, 2])
    finally:
        await broadcaster.stop()
    for partition in range(PARTITIONS):
        assert revisions(settings, DISPATCHES, partition) == [1, 2]
    told = [each for each in caplog.records if each.message == "revision_passed_over"]
    assert [each.__dict__["position"] for each in told] == [
        f"{REGISTRY}/0/{offset}" for offset in range(1, 6)
    ]
