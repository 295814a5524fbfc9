"""librdkafka's own cluster in memory: real clients and a real protocol, but no durable log.

It creates topics of four partitions when they are first named.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Message, Producer, TopicPartition

from streams.kafka import make_consumer
from streams.settings import Settings


@contextmanager
def mock_cluster(rtt_ms: int = 0) -> Iterator[str]:
    """Provide the address of a cluster of one broker that answers after `rtt_ms`."""
    owner = Producer({"test.mock.num.brokers": 1, "test.mock.broker.rtt": rtt_ms, "log_level": 0})
    (broker,) = owner.list_topics(timeout=30).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del owner


def read(settings: Settings, topic: str, partition: int, count: int) -> list[Message]:
    """Read the first `count` records of a partition."""
    consumer = make_consumer(settings, group_id=None)
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        records: list[Message] = []
        while len(records) < count:
            record = consumer.poll(30)
            assert record is not None, f"{len(records)} of {count} records came"
            assert record.error() is None, record.error()
            records.append(record)
        return records
    finally:
        consumer.close()
