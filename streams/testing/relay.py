"""The relay in memory: tells the scheduler's mailbox of every queue's jobs, as the live one does.

It appends a round's words one by one, and commits once all of them are there; one that is lost in
between is followed by one that begins anew from what was committed, and repeats.

Source: DESIGN "A job".
"""

from __future__ import annotations

from collections import deque

from streams.codec import Codec
from streams.core import worker_queue
from streams.core.ready_jobs import Source, Word, words_of
from streams.core.shards import numbers_of
from streams.edge.queue_catalog import CONFIGURED, queue_topics
from streams.edge.relay.jobs import dealt_of
from streams.testing.memory_kafka import MemoryKafka, header
from topology.edges import RELAY
from topology.family import expand
from topology.model import Topology
from topology.topics import QUEUE_TOPICS

REQUESTS = "worker.requests"

_ROUND_RECORDS = 8


class MemoryRelay:
    """One relay.  Replace it to make it crash."""

    def __init__(self, kafka: MemoryKafka, codec: Codec, topology: Topology) -> None:
        self._kafka = kafka
        self._codec = codec
        self._topology = topology
        self._next: dict[tuple[str, int], int] = {}
        self._sources: dict[str, Source] = {}
        self._pending: deque[Word] = deque()
        self._reached: tuple[str, int] | None = None

    def has_work(self) -> bool:
        """Whether a word is to be said, or a place to be committed."""
        return self._reached is not None or any(map(self._take, self._places()))

    def work(self) -> None:
        """Say one word, or commit when all of a round are said; `has_work` came before."""
        if self._pending:
            word = self._pending.popleft()
            self._kafka.append(
                REQUESTS,
                self._codec.encode(word.kind, word.value),
                key=word.key.encode(),
                headers=[("kind", word.kind.encode())],
            )
            return
        assert self._reached is not None, "there is something to do"
        topic, partition = self._reached
        self._kafka.commit(RELAY.group, topic, partition, self._next[self._reached])
        self._reached = None

    def _places(self) -> list[tuple[str, int]]:
        topics = queue_topics(self._kafka.topic_names()).values()
        return [(topic, n) for topic in topics for n in range(self._kafka.partitions(topic))]

    def _take(self, place: tuple[str, int]) -> bool:
        """Read the next round of a partition, if there is one."""
        if place not in self._next:
            topic, partition = place
            known = self._kafka.committed(RELAY.group, topic, [partition])
            self._next[place] = known.get(partition, 0)
        first = self._next[place]
        records = self._kafka.fetch(*place, first, _ROUND_RECORDS)
        if not records:
            return False
        source = self._source(*place)
        dealt = [dealt_of(self._codec, record) for record in records]
        following = records[-1].offset + 1
        self._pending.extend(words_of(source, dealt, first, following))
        self._next[place] = following
        self._reached = place
        return True

    def _source(self, topic: str, partition: int) -> Source:
        """Return how a queue is dealt out; the topics that belong to it are made before."""
        if topic not in self._sources:
            queue = next(q for q, t in queue_topics([topic]).items() if t == topic)
            create_queue_topics(self._kafka, self._topology, queue)
            self._sources[topic] = source_of(self._kafka, self._codec, queue)
        return self._sources[topic]._replace(partition=partition)


def create_queue_topics(kafka: MemoryKafka, topology: Topology, queue: str) -> None:
    """Make the topics of a queue that are missing."""
    for family in QUEUE_TOPICS:
        name = expand(topology, family, queue).name
        if not kafka.partitions(name):
            kafka.create(name, 1)


def source_of(kafka: MemoryKafka, codec: Codec, queue: str) -> Source:
    """Return how a queue is dealt out: what the first word of the catalog says of it."""
    source = Source(queue, worker_queue.topic_of(queue), 0)
    for _, record in kafka.history(worker_queue.QUEUES):
        if header(record.headers, "kind") == CONFIGURED and record.value is not None:
            said = codec.decode(record.value)[1]
            if said["queue"] == queue:
                numbers = numbers_of(said["shards"], said["numbers"])
                return source._replace(
                    shards=said["shards"], shard_by=said["shard_by"], numbers=numbers
                )
    return source
