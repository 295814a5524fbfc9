"""Small round trips to a real broker, through the project's own clients."""

from __future__ import annotations

import uuid

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from streams.kafka import make_admin, make_consumer, make_producer, wait_until_served
from streams.settings import Settings


def new_topic(settings: Settings, *, partitions: int = 1, prefix: str = "test") -> str:
    """Create a topic nobody else uses and return its name."""
    name = f"{prefix}.{uuid.uuid4().hex[:12]}"
    admin = make_admin(settings)  # must live until it has answered
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(timeout=30)
    wait_until_served(settings, [(name, number) for number in range(partitions)], 30)
    return name


def append(settings: Settings, topic: str, values: list[bytes]) -> None:
    """Append to partition 0 and wait until the broker has it."""
    producer = make_producer(settings)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read_all(settings: Settings, topic: str, partition: int = 0) -> list[bytes]:
    """Read the values of a partition from its start to its end."""
    consumer = make_consumer(settings, group_id=None)
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        consumer.assign([TopicPartition(topic, partition, low)])
        values: list[bytes] = []
        while high > low + len(values):
            message = consumer.poll(30)
            assert message is not None, f"{topic}: {len(values)} of {high - low} records came"
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
        return values
    finally:
        consumer.close()
