"""Requests of an owner that arrive after their transaction's end, on a real broker (ADR 20)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from streams.agents.changelog import offset_metadata
from streams.audit.log import LogRecord
from streams.engine import fold_batch
from streams.kafka import make_consumer, make_producer
from streams.settings import Settings
from tests.support.broker import Kafka
from tests.support.fleet import wait_until
from tests.support.live_toy import LiveToy
from tests.support.slow_network import PRODUCE, TXN_OFFSET_COMMIT, SlowNetwork, slow_network
from tests.support.topics import new_topic
from tests.support.toy import command

pytestmark = [pytest.mark.broker]

OLD_EPOCH = (47).to_bytes(2)
"""The broker's code for a producer that has a successor."""


@pytest.fixture
def network(kafka: Kafka) -> Iterator[SlowNetwork]:
    with slow_network(kafka.bootstrap) as network:
        yield network


class Place:
    """A partition that owners with one transactional id write to."""

    def __init__(self, kafka: Kafka, network: SlowNetwork) -> None:
        self.near = kafka.settings
        self.far = replace(kafka.settings, bootstrap=network.bootstrap)
        self.topic = new_topic(kafka.settings)
        self.network = network

    def owner(self, settings: Settings | None = None) -> Producer:
        owner = make_producer(settings or self.near, transactional_id=self.topic)
        owner.init_transactions(30)
        return owner

    def begin(self, owner: Producer, *, arrived: bool) -> None:
        """Begin a transaction whose last record is on its way; one before it may have arrived."""
        owner.begin_transaction()
        if arrived:
            owner.produce(self.topic, b"arrived", partition=0)
            assert owner.flush(30) == 0
        self.network.hold(PRODUCE)
        owner.produce(self.topic, b"late", partition=0)
        self.network.wait_held()

    def ends(self, isolation: str) -> int:
        consumer = make_consumer(self.near, group_id=None, isolation=isolation)
        try:
            place = TopicPartition(self.topic, 0)
            return consumer.get_watermark_offsets(place, timeout=30, cached=False)[1]
        finally:
            consumer.close()

    def read_committed(self) -> list[bytes]:
        """Read what counts; it is all that there is, since nothing may be open."""
        end = self.ends("read_committed")
        assert end == self.ends("read_uncommitted"), "readers would wait here for ever"
        consumer = make_consumer(self.near, group_id=None, enable_partition_eof=True)
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        values: list[bytes] = []
        try:
            while (message := consumer.poll(30)) is not None and message.error() is None:
                values.append(message.value() or b"")
        finally:
            consumer.close()
        return values


@pytest.mark.parametrize("arrived", [False, True], ids=["the-first", "a-further-one"])
def test_a_record_of_a_fenced_owner_that_arrives_after_the_end_is_refused(
    kafka: Kafka, network: SlowNetwork, arrived: bool
) -> None:
    place = Place(kafka, network)
    stopped = place.owner(place.far)
    place.begin(stopped, arrived=arrived)

    successor = place.owner()
    [answer] = network.release()
    assert OLD_EPOCH in answer
    assert place.read_committed() == []

    successor.begin_transaction()
    successor.produce(place.topic, b"the successor's", partition=0)
    successor.commit_transaction(30)
    assert place.read_committed() == [b"the successor's"]
    with pytest.raises(KafkaException, match="fenced"):
        stopped.commit_transaction(30)


def test_a_record_that_arrives_after_the_coordinator_s_own_end_is_refused(
    kafka: Kafka, network: SlowNetwork
) -> None:
    place = Place(kafka, network)
    stopped = place.owner(replace(place.far, transaction_timeout_ms=1_000))
    place.begin(stopped, arrived=False)
    wait_until("the transaction is ended", lambda: place.ends("read_uncommitted") == 1)
    [answer] = network.release()
    assert OLD_EPOCH in answer
    assert place.read_committed() == []


def test_a_record_that_was_sent_again_and_committed_counts_once(
    kafka: Kafka, network: SlowNetwork
) -> None:
    place = Place(kafka, network)
    owner = place.owner(place.far)
    owner.begin_transaction()
    network.hold(PRODUCE, count=1)
    owner.produce(place.topic, b"twice on its way", partition=0)
    network.wait_held()
    network.cut()
    owner.commit_transaction(30)
    network.release()
    assert place.read_committed() == [b"twice on its way"]


def nobody(group: str) -> bytes:
    return b"CGMDv2:" + struct.pack("=i", -1) + group.encode() + b"\0\0\x01"


def committed(settings: Settings, group: str, place: TopicPartition) -> int:
    consumer = make_consumer(settings, group_id=group)
    try:
        return consumer.committed([place], timeout=30)[0].offset
    finally:
        consumer.close()


def test_offsets_of_a_fenced_owner_that_arrive_after_the_end_are_refused(
    kafka: Kafka, network: SlowNetwork
) -> None:
    place = Place(kafka, network)
    group, source = f"group-{place.topic}", TopicPartition(place.topic, 0, 7)
    stopped = place.owner(place.far)
    stopped.begin_transaction()
    network.hold(TXN_OFFSET_COMMIT)

    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(stopped.send_offsets_to_transaction, [source], nobody(group), 30)
        network.wait_held()
        place.owner()
        [answer] = network.release()
        with pytest.raises(KafkaException, match=r"old epoch|fenced"):
            sending.result(30)
    assert OLD_EPOCH in answer
    assert committed(kafka.settings, group, source) < 0


async def test_a_partition_is_taken_though_offsets_came_once_more_after_their_commit(
    kafka: Kafka, network: SlowNetwork
) -> None:
    """The client gave them again over another connection, and committed; then the first came."""
    toy = LiveToy(replace(kafka.settings, transaction_timeout_ms=2_000))
    toy.append(command("emit", text="first:"))
    # Its transaction must outlast a cut connection; the member below waits by its own time.
    before = toy.app(bootstrap=network.bootstrap, transaction_timeout_ms=60_000)
    try:
        entry = (await before.live._taking.take((0,), doubtful=False))[0]
        assert entry.memory is not None
        value = toy.codec.encode("toy_command", command("emit", text="first:"))
        step = fold_batch(entry.memory, [LogRecord(0, 1_000, b"k", value, [("kind", b"command")])])
        metadata = offset_metadata(step.position.seq, 0, b"")
        network.hold(TXN_OFFSET_COMMIT, count=1)
        commit = asyncio.to_thread(entry.producer.commit, step, metadata, nobody(before.conf.id))
        committing = asyncio.create_task(commit)
        await asyncio.to_thread(network.wait_held)
        network.cut()
        await committing
        place = TopicPartition(toy.mailbox, 0)
        stands = await asyncio.to_thread(committed, toy.settings, before.conf.id, place)
        assert stands == 1, "the transaction has ended everywhere"
        await asyncio.to_thread(network.release)
    finally:
        await before.live.close()

    toy.append(command("emit", text="second:"))
    async with toy.member():
        await toy.everything_folded()
    assert toy.texts() == ["first:0", "second:0"]
    toy.assert_every_record_was_folded_once()
