from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka import KafkaError, Message

from streams.core.record import Position
from streams.edge.publisher import Publisher
from streams.errors import BrokerError
from streams.settings import Settings
from tests.support.mock_cluster import mock_cluster, read

TOPIC = "trigger.dispatches"


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    with mock_cluster() as bootstrap:
        yield Settings(bootstrap=bootstrap)


@pytest_asyncio.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    publisher = Publisher(settings, name="test")
    await publisher.start()
    yield publisher
    await publisher.stop()


async def test_an_append_returns_the_position_that_the_broker_gave(publisher: Publisher) -> None:
    first = await publisher.append("a.positions", kind="tick", value=b"1", key=None, partition=2)
    second = await publisher.append("a.positions", kind="tick", value=b"2", key=None, partition=2)
    assert (first, second) == (Position("a.positions", 2, 0), Position("a.positions", 2, 1))


async def test_a_record_carries_kind_first_then_the_headers_given(
    publisher: Publisher, settings: Settings
) -> None:
    headers = [("cause", b"a/0/1"), ("tenant_id", b"acme")]
    await publisher.append(
        "a.headers", kind="invocation_completed", value=b"v", key=b"k", headers=headers, partition=1
    )
    (record,) = read(settings, "a.headers", 1, 1)
    assert record.headers() == [("kind", b"invocation_completed"), *headers]
    assert (record.key(), record.value()) == (b"k", b"v")


async def test_without_a_partition_the_key_decides_as_it_does_for_java(
    publisher: Publisher,
) -> None:
    keys = [b"session:1", b"session:2", b"session:3", b"session:4", b"k0", b"k1"]
    placed = [
        (await publisher.append("a.keys", kind="tick", value=b"", key=key)).partition
        for key in keys
    ]
    assert placed == [murmur2(key) % 4 for key in keys]


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key, positive (org.apache.kafka.common.utils.Utils)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    if key[whole:]:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF


async def test_appends_to_a_partition_keep_their_order(
    publisher: Publisher, settings: Settings
) -> None:
    values = [str(n).encode() for n in range(5_000)]
    appended = [
        publisher.append_soon("a.order", kind="tick", value=value, key=None, partition=0)
        for value in values
    ]
    positions = await asyncio.gather(*appended)
    assert [position.offset for position in positions] == list(range(5_000))
    assert [record.value() for record in read(settings, "a.order", 0, 5_000)] == values


def forgetting(publisher: Publisher, acks: int) -> None:
    """Let the client not know where a record is, for so many acks: as after an answer it lost."""
    remaining = acks
    deliver = publisher._on_delivery

    def without_offset(
        record: Any, appended: Any, again: int, error: KafkaError | None, message: Message
    ) -> None:
        nonlocal remaining
        if remaining > 0:
            remaining -= 1
            message = Message(topic=message.topic(), partition=message.partition(), offset=-1)
        deliver(record, appended, again, error, message)

    publisher._on_delivery = without_offset


async def test_what_is_delivered_nobody_knows_where_is_appended_again(
    publisher: Publisher, settings: Settings
) -> None:
    """It may be lost: the client takes the ack of the next record for it (its issue 921 of Go)."""
    forgetting(publisher, 2)
    headers = [("cause", b"a/0/1")]
    at = await publisher.append(
        "a.again", kind="tick", value=b"v", key=b"k", headers=headers, partition=3
    )
    assert at == Position("a.again", 3, 2)
    for record in read(settings, "a.again", 3, 3):
        assert (record.key(), record.value()) == (b"k", b"v")
        assert record.headers() == [("kind", b"tick"), *headers]


async def test_a_record_of_which_it_is_never_known_where_it_is_fails_as_an_outage(
    publisher: Publisher,
) -> None:
    forgetting(publisher, 3)
    with pytest.raises(BrokerError, match=r"a.never/1: the broker does not say where") as caught:
        await publisher.append("a.never", kind="tick", value=b"1", key=None, partition=1)
    assert caught.value.retryable
    assert (await publisher.append("a.others", kind="tick", value=b"1", key=None)).offset == 0
    assert not publisher.failed.done()


async def test_what_nobody_waits_for_any_more_is_not_appended_again(settings: Settings) -> None:
    publisher = Publisher(settings, name="test", linger_ms=200)
    await publisher.start()
    forgetting(publisher, 1)
    given_up = publisher.append_soon("a.given.up", kind="t", value=b"1", key=None, partition=0)
    given_up.cancel()
    await publisher.stop()
    later = Publisher(settings, name="later")
    await later.start()
    at = await later.append("a.given.up", kind="t", value=b"2", key=None, partition=0)
    await later.stop()
    assert at.offset == 1


async def test_stopping_waits_for_what_is_appended_again(settings: Settings) -> None:
    publisher = Publisher(settings, name="test", linger_ms=200)
    await publisher.start()
    forgetting(publisher, 2)
    appended = publisher.append_soon("a.stop.again", kind="t", value=b"", key=None, partition=0)
    await publisher.stop()
    assert appended.result() == Position("a.stop.again", 0, 2)


async def test_stopping_waits_for_the_acks_of_what_was_appended(settings: Settings) -> None:
    publisher = Publisher(settings, name="test", linger_ms=200)
    await publisher.start()
    appended = publisher.append_soon("a.stop", kind="tick", value=b"", key=None, partition=0)
    await publisher.stop()
    assert appended.done()
    assert appended.result() == Position("a.stop", 0, 0)


async def test_a_stopped_publisher_refuses_and_says_so(settings: Settings) -> None:
    publisher = Publisher(settings, name="test")
    await publisher.start()
    await publisher.stop()
    await publisher.stop()
    with pytest.raises(BrokerError, match="publisher test is not running") as refused:
        await publisher.append(TOPIC, kind="tick", value=b"", key=None)
    assert refused.value.retryable


async def test_a_full_queue_is_an_outage_of_that_append_only() -> None:
    with mock_cluster(rtt_ms=100) as bootstrap:
        publisher = Publisher(Settings(bootstrap=bootstrap), name="test", queue_records=10)
        await publisher.start()
        appended = [
            publisher.append_soon("a.full", kind="tick", value=b"", key=None, partition=0)
            for _ in range(12)
        ]
        assert [each.done() for each in appended] == [False] * 10 + [True] * 2
        for refused in appended[10:]:
            error = refused.exception()
            assert isinstance(error, BrokerError)
            assert error.retryable
            assert "a.full: 10 records of publisher test wait for the broker" in str(error)
        assert len(await asyncio.gather(*appended[:10])) == 10
        assert not publisher.failed.done()
        await publisher.stop()


async def test_what_has_no_ack_when_the_drain_time_ends_fails_as_an_outage() -> None:
    with mock_cluster() as bootstrap:
        publisher = Publisher(Settings(bootstrap=bootstrap, drain_ms=50), name="test")
        await publisher.start()
    appended = publisher.append_soon("a.gone", kind="tick", value=b"", key=None, partition=0)
    await publisher.stop()
    error = appended.exception()
    assert isinstance(error, BrokerError)
    assert error.retryable
    assert "a.gone: append by test failed" in str(error)


async def test_a_record_above_the_limit_is_refused_for_good(publisher: Publisher) -> None:
    with pytest.raises(BrokerError, match=r"a\.large: append by test failed") as refused:
        await publisher.append("a.large", kind="tick", value=bytes(1_100_000), key=None)
    assert not refused.value.retryable
    assert not publisher.failed.done()


async def test_a_partition_that_does_not_exist_is_refused_for_good(publisher: Publisher) -> None:
    await publisher.append("a.small", kind="tick", value=b"", key=None, partition=0)
    with pytest.raises(BrokerError, match=r"a\.small: append by test failed") as refused:
        await publisher.append("a.small", kind="tick", value=b"", key=None, partition=99)
    assert not refused.value.retryable


async def test_starting_without_a_broker_is_an_outage() -> None:
    with mock_cluster() as bootstrap:
        settings = Settings(bootstrap=bootstrap)
    publisher = Publisher(settings, name="test", connect_timeout_s=0.2)
    with pytest.raises(BrokerError) as outage:
        await publisher.start()
    assert outage.value.retryable
    await publisher.stop()


async def test_a_caller_that_gave_up_waiting_disturbs_nobody(publisher: Publisher) -> None:
    first = publisher.append_soon("a.cancel", kind="tick", value=b"", key=None, partition=0)
    first.cancel()
    second = await publisher.append("a.cancel", kind="tick", value=b"", key=None, partition=0)
    assert second.offset == 1
