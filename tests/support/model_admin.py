"""A Kafka cluster's topics in memory, behind the admin interface, with Kafka's own refusals.

It records nothing and answers nothing by script: it holds topics and obeys or refuses as a broker
does, so that the code under test runs whole.
"""

# confluent-kafka documents these names in `confluent_kafka.admin` without listing them there.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    BrokerMetadata,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    PartitionMetadata,
    TopicMetadata,
)

from topology.plan import ObservedTopic

# What a broker fills in where a topic sets nothing.
BROKER_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.ms": "604800000",
}


class ModelAdmin:
    """`confluent_kafka.admin.AdminClient` over a cluster of `brokers` in memory.

    `topics` may be read and set by a test; `changes` counts what was asked for and done;
    `lag` is how many times a listing is still answered as before a change.
    """

    def __init__(self, brokers: int = 3, topics: Mapping[str, ObservedTopic] | None = None) -> None:
        self.brokers = brokers
        self.topics: dict[str, ObservedTopic] = dict(topics or {})
        self.changes = 0
        self.lag = 0
        self._stale: dict[str, ObservedTopic] | None = None

    def list_topics(self, *, timeout: float) -> ClusterMetadata:
        assert timeout > 0
        metadata = ClusterMetadata()
        metadata.brokers = {number: BrokerMetadata() for number in range(self.brokers)}
        shown = self.topics
        if self._stale is not None and self.lag > 0:
            self.lag -= 1
            shown = self._stale
        metadata.topics = {name: self._metadata(topic) for name, topic in shown.items()}
        return metadata

    def describe_configs(
        self, resources: list[ConfigResource], /, *, request_timeout: float
    ) -> dict[ConfigResource, Future[Any]]:
        assert request_timeout > 0
        return {resource: self._described(resource.name) for resource in resources}

    def create_topics(
        self, new_topics: list[NewTopic], /, *, request_timeout: float
    ) -> dict[str, Future[Any]]:
        assert request_timeout > 0
        return {topic.topic: self._created(topic) for topic in new_topics}

    def create_partitions(
        self, new_partitions: list[NewPartitions], /, *, request_timeout: float
    ) -> dict[str, Future[Any]]:
        assert request_timeout > 0
        return {each.topic: self._grown(each) for each in new_partitions}

    def incremental_alter_configs(
        self, resources: list[ConfigResource], /, *, request_timeout: float
    ) -> dict[ConfigResource, Future[Any]]:
        assert request_timeout > 0
        for resource in resources:
            topic = self.topics[resource.name]
            entries = {entry.name: str(entry.value) for entry in resource.incremental_configs}
            self._put(topic.name, topic.partitions, topic.replication_factor, topic.config, entries)
        return {resource: _done() for resource in resources}

    def poll(self, timeout: float, /) -> int:
        assert timeout >= 0
        return 0

    def _metadata(self, topic: ObservedTopic) -> TopicMetadata:
        metadata = TopicMetadata()
        metadata.topic = topic.name
        for number in range(topic.partitions):
            partition = PartitionMetadata()
            partition.id = number
            partition.replicas = list(range(topic.replication_factor))
            metadata.partitions[number] = partition
        return metadata

    def _described(self, name: str) -> Future[Any]:
        if name not in self.topics:
            return _failed(KafkaError.UNKNOWN_TOPIC_OR_PART)
        config = self.topics[name].config
        return _done({key: ConfigEntry(key, value) for key, value in config.items()})

    def _created(self, topic: NewTopic) -> Future[Any]:
        if topic.topic in self.topics:
            return _failed(KafkaError.TOPIC_ALREADY_EXISTS)
        if topic.replication_factor > self.brokers:
            return _failed(KafkaError.INVALID_REPLICATION_FACTOR)
        self._put(
            topic.topic,
            topic.num_partitions,
            topic.replication_factor,
            BROKER_DEFAULTS,
            topic.config or {},
        )
        return _done()

    def _grown(self, wanted: NewPartitions) -> Future[Any]:
        topic = self.topics.get(wanted.topic)
        if topic is None:
            return _failed(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if wanted.new_total_count <= topic.partitions:
            return _failed(KafkaError.INVALID_PARTITIONS)
        self._put(topic.name, wanted.new_total_count, topic.replication_factor, topic.config, {})
        return _done()

    def _put(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        settings: Mapping[str, str],
    ) -> None:
        if self._stale is None or self.lag == 0:
            self._stale = dict(self.topics)
        self.changes += 1
        self.topics[name] = ObservedTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            config={**config, **settings},
        )


def _done(result: object = None) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def _failed(code: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future
