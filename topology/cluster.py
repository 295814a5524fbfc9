"""What is asked of a cluster: read topics, create them, grow them, set their settings.

Two of us may ask at once: what another has done meanwhile counts as done.  Whatever else a cluster
refuses, and a cluster that does not answer, is a `KafkaException` that names the topic.

The admin client is passed in; `Admin` is the part of it that is used here.
"""

# confluent-kafka documents these names in `confluent_kafka.admin` without listing them there.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from topology.plan import ObservedCluster, ObservedTopic
from topology.resolve import ResolvedTopic

__all__ = ["Admin", "alter", "create", "grow", "observe"]

_REACH_TIMEOUT_S = 10.0  # a cluster that does not answer by then is not there
_REQUEST_TIMEOUT_S = 60.0  # many topics on a small broker take their time

# Another has created the topic, or has grown it to as many partitions already.
_DONE_BY_ANOTHER = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS)


class Admin(Protocol):
    """confluent-kafka's `AdminClient`, as far as it is used here."""

    def list_topics(self, *, timeout: float) -> ClusterMetadata:
        """Return brokers, topics and partitions."""
        ...

    def describe_configs(
        self, resources: list[ConfigResource], /, *, request_timeout: float
    ) -> dict[ConfigResource, Future[Any]]:
        """Return the effective settings of each resource."""
        ...

    def create_topics(
        self, new_topics: list[NewTopic], /, *, request_timeout: float
    ) -> dict[str, Future[Any]]:
        """Create topics."""
        ...

    def create_partitions(
        self, new_partitions: list[NewPartitions], /, *, request_timeout: float
    ) -> dict[str, Future[Any]]:
        """Add partitions."""
        ...

    def incremental_alter_configs(
        self, resources: list[ConfigResource], /, *, request_timeout: float
    ) -> dict[ConfigResource, Future[Any]]:
        """Set single settings."""
        ...

    def poll(self, timeout: float, /) -> int:
        """Serve callbacks for `timeout` seconds."""
        ...


def observe(admin: Admin, names: Collection[str]) -> ObservedCluster:
    """Read the topics `names` as the cluster has them; those that it has not are left out."""
    # All topics: asking for one by name may create it, where the broker is set so.
    metadata = admin.list_topics(timeout=_REACH_TIMEOUT_S)
    present = [name for name in names if name in metadata.topics]
    configs = _configs(admin, present)
    topics: dict[str, ObservedTopic] = {}
    for name in present:
        partitions = metadata.topics[name].partitions
        if partitions and name in configs:  # otherwise it comes or goes this very moment
            topics[name] = ObservedTopic(
                name=name,
                partitions=len(partitions),
                replication_factor=min(len(each.replicas) for each in partitions.values()),
                config=configs[name],
            )
    return ObservedCluster(brokers=len(metadata.brokers), topics=topics)


def create(admin: Admin, topics: Iterable[ResolvedTopic]) -> None:
    """Create topics."""
    new = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            config=dict(topic.config),
        )
        for topic in topics
    ]
    if new:
        _settle(admin.create_topics(new, request_timeout=_REQUEST_TIMEOUT_S))


def grow(admin: Admin, topics: Iterable[ResolvedTopic]) -> None:
    """Add partitions, up to the number that each topic should have."""
    new = [NewPartitions(topic.name, topic.partitions) for topic in topics]
    if new:
        _settle(admin.create_partitions(new, request_timeout=_REQUEST_TIMEOUT_S))


def alter(admin: Admin, settings: Mapping[str, Mapping[str, str]]) -> None:
    """Set the given settings of each topic; the others of that topic stay."""
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                for key, value in entries.items()
            ],
        )
        for name, entries in settings.items()
        if entries
    ]
    if resources:
        futures = admin.incremental_alter_configs(resources, request_timeout=_REQUEST_TIMEOUT_S)
        _settle({resource.name: future for resource, future in futures.items()})


def _configs(admin: Admin, names: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    if not resources:
        return {}
    futures = admin.describe_configs(resources, request_timeout=_REQUEST_TIMEOUT_S)
    configs: dict[str, dict[str, str]] = {}
    for resource, future in futures.items():
        try:
            entries = cast("dict[str, ConfigEntry]", future.result())
        except KafkaException as error:
            if _error(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            continue
        configs[resource.name] = {
            name: entry.value for name, entry in entries.items() if entry.value is not None
        }
    return configs


def _settle(futures: Mapping[str, Future[Any]]) -> None:
    """Wait for every future, then raise the first failure that is not another's success."""
    failures: list[KafkaException] = []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as exception:
            error = _error(exception)
            if error.code() not in _DONE_BY_ANOTHER:
                failures.append(
                    KafkaException(KafkaError(error.code(), f"topic {name}: {error.str()}"))
                )
    if failures:
        raise failures[0]


def _error(exception: KafkaException) -> KafkaError:
    return cast("KafkaError", exception.args[0])
