"""A recorded log on a real cluster: written as it is, or by the stages' own transactions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streams.agents.transaction import PartitionProducer, Target, no_faults
from streams.audit.kafka_log import KafkaLog
from streams.engine import Memory, fold_batch, settle
from streams.kafka import make_admin, make_consumer, make_producer, wait_until_served
from streams.settings import Settings
from tests.support.eventually import PATIENCE_S
from tests.support.fleet import wait_until
from tests.support.recorded import Recording


def new_prefix() -> str:
    """A prefix that no other test's topics have."""
    return f"a{uuid.uuid4().hex[:10]}-"


def create_topics(settings: Settings, recording: Recording, *, append_time: bool) -> None:
    """Create the topics of a recording, empty."""
    topics = [
        NewTopic(
            topic.name,
            recording.partitions,
            1,
            config={
                "message.timestamp.type": "LogAppendTime"
                if append_time and topic.log_append_time
                else "CreateTime",
                "retention.ms": "-1",
            },
        )
        for topic in recording.topology.topics
    ]
    admin = make_admin(settings)
    for future in admin.create_topics(topics).values():
        future.result(timeout=30)
    names = [topic.name for topic in recording.topology.topics]
    places = [(name, number) for name in names for number in range(recording.partitions)]
    wait_until_served(settings, places, PATIENCE_S)


def publish(settings: Settings, recording: Recording) -> None:
    """Write a recorded log to a cluster: the same records at the same offsets and times."""
    create_topics(settings, recording, append_time=False)
    producer = make_producer(settings)
    for topic, partitions in recording.log.topics.items():
        for partition, records in enumerate(partitions):
            for offset, record in enumerate(records):
                assert record.offset == offset, f"{topic}/{partition}: offsets have a gap"
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=partition,
                    timestamp=record.timestamp,
                    headers=[*record.headers],
                )
                producer.poll(0)
    assert producer.flush(60) == 0
    commit_offsets(settings, recording)


def delete_records(settings: Settings, *before: TopicPartition) -> None:
    """Remove the head of partitions, as retention does."""
    admin = make_admin(settings)
    for future in admin.delete_records(list(before)).values():
        future.result(timeout=30)


def commit_offsets(settings: Settings, recording: Recording) -> None:
    """Set the groups' offsets to those of the recording."""
    admin = make_admin(settings)
    for (group, topic, partition), offset in recording.log.groups.items():
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        wait_until(f"the offsets of {group}", partial(_is_set, admin, asked))


def _is_set(admin: AdminClient, asked: ConsumerGroupTopicPartitions) -> bool:
    """Try once: a broker that is only now making its offsets topic never answers the first one."""
    answer = admin.alter_consumer_group_offsets([asked], request_timeout=3)[asked.group_id]
    try:
        answer.result(10)
    except (KafkaException, TimeoutError):
        return False
    return True


class Owners:
    """The stage partitions of a recording at work on a cluster, one transaction a step."""

    def __init__(self, settings: Settings, recording: Recording) -> None:
        self._settings = settings
        self._recording = recording
        self._log = KafkaLog(settings)
        self.memories = {
            (name, partition): Memory(stage, partition)
            for name, stage in recording.stages.items()
            for partition in range(recording.partitions)
        }
        self.producers = {place: self._producer(*place) for place in self.memories}

    def _producer(self, name: str, partition: int) -> PartitionProducer:
        declared = self._recording.stages[name].declaration
        target = Target(
            source=declared.source,
            partition=partition,
            changelog=declared.changelog,
            journal=f"{self._recording.prefix}journal",
            journal_partition=partition,
            journal_key=f"{name}/{partition}".encode(),
        )
        group = declared.group
        producer = PartitionProducer(self._settings, f"{group}-{partition}", target, no_faults)
        producer.fence()
        return producer

    def run(self) -> None:
        """Work until no mailbox has anything left."""
        while sum(self.step(*place) for place in self.memories):
            pass

    def step(self, name: str, partition: int) -> int:
        """Commit one batch of a stage partition; return how many records it had."""
        memory = self.memories[name, partition]
        declared = memory.stage.declaration
        place = (declared.source, partition)
        end = self._log.spans([place])[place].end
        start = memory.position.next_offset
        waiting = [record for records in self._log.read(place, start, end) for record in records]
        if not waiting:
            return 0
        step = fold_batch(memory, waiting[: self._recording.dice.randrange(1, 200)])
        with self._membership(declared.group) as group_metadata:
            self.producers[name, partition].commit(step, "", group_metadata)
        settle(memory, step)
        return step.records

    @contextmanager
    def _membership(self, group: str) -> Iterator[bytes]:
        consumer = make_consumer(self._settings, group_id=group)
        try:
            yield consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def close(self) -> None:
        """Close the reader's connections."""
        with self._log:
            pass
