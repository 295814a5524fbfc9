"""A stage's transaction on a real broker: all or nothing, fenced, and patient with a full queue."""

from __future__ import annotations

import struct

import pytest
from confluent_kafka import Consumer, TopicPartition

from streams.agents.changelog import offset_metadata
from streams.agents.transaction import (
    AFTER_OFFSETS,
    Faults,
    PartitionProducer,
    Target,
    no_faults,
)
from streams.engine import EncodedOutput, StatePosition, Step
from streams.errors import BrokerError
from streams.kafka import make_consumer
from streams.settings import Settings
from tests.support.broker import Kafka
from tests.support.topics import new_topic

pytestmark = pytest.mark.broker

OUTPUTS = 5_000


class Bench:
    """Fresh topics and a producer of one partition."""

    def __init__(self, settings: Settings, *, queue_records: int = 100_000) -> None:
        self.settings = settings
        self.queue_records = queue_records
        self.source = new_topic(settings)
        self.outputs = new_topic(settings)
        self.changelog = new_topic(settings)
        self.journal = new_topic(settings)

    def producer(self, faults: Faults = no_faults) -> PartitionProducer:
        target = Target(self.source, 0, self.changelog, self.journal, 0, b"test/0")
        made = PartitionProducer(
            self.settings,
            f"txn-{self.source}",
            target,
            faults,
            queue_records=self.queue_records,
        )
        made.fence()
        self.committed_offset()  # makes the broker create its offsets topic before it is needed
        return made

    def step(self, seq: int, outputs: int = 10) -> Step:
        position = StatePosition(seq, seq * 100, 1_000 + seq, b"c" * 32, b"h" * 32)
        return Step(
            outputs=[
                EncodedOutput(self.outputs, 0, b"k", b"%d/%d" % (seq, n), [("kind", b"test")])
                for n in range(outputs)
            ],
            rows=[(b"r:1", b"row %d" % seq), (b"r:2", None)],
            journal=b"journal %d" % seq,
            position_row=b"position %d" % seq,
            position=position,
            records=1,
            quarantined=0,
        )

    def commit(self, producer: PartitionProducer, step: Step) -> None:
        position = step.position
        metadata = offset_metadata(position.seq, position.now_ms, position.chain)
        producer.commit(step, metadata, self._member())

    def _member(self) -> bytes:
        """Group metadata of nobody: a producer outside any group generation."""
        group = f"group-{self.source}".encode()
        return b"CGMDv2:" + struct.pack("=i", -1) + group + b"\0\0\x01"

    def committed(self, topic: str, count: int) -> list[bytes]:
        """Read committed values: markers follow a commit's return by some milliseconds."""
        consumer = make_consumer(self.settings, group_id=None)
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            values: list[bytes] = []
            while len(values) < count:
                message = consumer.poll(30)
                assert message is not None, f"{len(values)} of {count} values came"
                assert message.error() is None, message.error()
                values.append(message.value() or b"")
            return values
        finally:
            consumer.close()

    def committed_offset(self) -> int:
        consumer: Consumer = make_consumer(self.settings, group_id=f"group-{self.source}")
        try:
            found = consumer.committed([TopicPartition(self.source, 0)], 30)
        finally:
            consumer.close()
        return found[0].offset


def test_everything_of_a_batch_is_committed_together(kafka: Kafka) -> None:
    bench = Bench(kafka.settings)
    bench.commit(bench.producer(), bench.step(1))
    assert bench.committed(bench.outputs, 2) == [b"1/0", b"1/1"]
    assert bench.committed(bench.changelog, 3) == [b"row 1", b"", b"position 1"]
    assert bench.committed(bench.journal, 1) == [b"journal 1"]
    assert bench.committed_offset() == 100


def test_a_full_producer_queue_waits_for_the_broker_and_loses_nothing(kafka: Kafka) -> None:
    bench = Bench(kafka.settings, queue_records=50)
    bench.commit(bench.producer(), bench.step(1, OUTPUTS))
    expected = [b"1/%d" % number for number in range(OUTPUTS)]
    assert bench.committed(bench.outputs, OUTPUTS) == expected


def test_a_fenced_owner_commits_nothing(kafka: Kafka) -> None:
    bench = Bench(kafka.settings)
    first = bench.producer()
    bench.commit(first, bench.step(1))
    second = bench.producer()
    with pytest.raises(BrokerError, match="transaction 2"):
        bench.commit(first, bench.step(2))
    bench.commit(second, bench.step(3))
    assert bench.committed(bench.journal, 2) == [b"journal 1", b"journal 3"]
    assert bench.committed_offset() == 300


def test_a_new_owner_settles_what_the_last_one_left_open(kafka: Kafka) -> None:
    bench = Bench(kafka.settings)

    class StoppedError(Exception):
        """Stands for a process that ends at this point."""

    def stop(point: str) -> None:
        if point == AFTER_OFFSETS:
            raise StoppedError

    abandoned = bench.producer(stop)
    with pytest.raises(StoppedError):
        bench.commit(abandoned, bench.step(1))
    bench.commit(bench.producer(), bench.step(2))
    assert bench.committed(bench.journal, 1) == [b"journal 2"]
    assert bench.committed_offset() == 200
