"""Read what a partition's state is: its committed offset, and its rows from the changelog.

Both are read after the partition was fenced, under read_committed: then they cannot disagree for
long.  The reserved position row is the authority: it was committed with the rows, and it survives
a change of the group.

Source: DESIGN "Taking a partition"; FINDINGS 1.4, 15.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.errors import BrokerError
from streams.kafka import ends_of, make_consumer, places_of
from streams.settings import Settings

TIMEOUT_S = 30.0
_CONSUME = 20_000
_CONSUME_TIMEOUT_S = 0.03

Take = Callable[[int, bytes, bytes | None, int], None]
"""Receives (partition, key, value, offset) of each changelog record; value None deletes."""


class CommittedOffset(NamedTuple):
    """A partition's committed mailbox offset and the seq beside it; -1 and 0 for none."""

    offset: int
    seq: int


def offset_metadata(seq: int, now_ms: int, chain: bytes) -> str:
    """Metadata committed with an offset: enough to see whether memory is current."""
    return f"{seq}:{now_ms}:{chain.hex()}"


class StateReader:
    """Blocking reads of offsets and changelogs for one stage; one call at a time."""

    def __init__(self, settings: Settings, *, group_id: str, source: str, changelog: str) -> None:
        self._settings = settings
        self._group_id = group_id
        self._source = source
        self._changelog = changelog
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._consumer: Consumer | None = None

    def _ready(self) -> Consumer:
        if self._consumer is None:
            self._consumer = make_consumer(
                self._settings,
                group_id=self._group_id,
                enable_partition_eof=True,
                fetch_wait_max_ms=50,
                queued_min_messages=200_000,
                fetch_message_max_bytes=4_000_000,
            )
            # All topics known and the connection up first: a cold load takes 0.1 s; each topic
            # that is new to the client waits for a timer of a second otherwise.
            self._consumer.list_topics(timeout=TIMEOUT_S)
        return self._consumer

    def committed(
        self, partitions: Iterable[int], timeout_s: float = TIMEOUT_S
    ) -> dict[int, CommittedOffset]:
        """Committed offsets, once no transaction over them is open (require_stable).

        Raises: BrokerError, also when one is still open after `timeout_s`.
        """
        wanted = [TopicPartition(self._source, partition) for partition in partitions]
        with self._lock:
            try:
                found = places_of(self._ready(), wanted, timeout_s)
            except KafkaException as error:
                message = f"committed offsets of {self._group_id} could not be read: {error}"
                raise BrokerError(message, retryable=True) from error
        return {entry.partition: _committed(entry) for entry in found}

    def group_metadata(self) -> bytes:
        """The group as librdkafka's transactions want it, without a member."""
        with self._lock:
            metadata: bytes = self._ready().consumer_group_metadata()
        return metadata

    def load(self, starts: dict[int, int], take: Take) -> int:
        """Hand changelog records to `take`, from `starts` (by partition) up to the stable end.

        Returns: how many records there were.
        Raises:  BrokerError, also when `close` is called meanwhile.
        """
        with self._lock:
            consumer = self._ready()
            try:
                consumer.assign(
                    [
                        TopicPartition(self._changelog, partition, start)
                        for partition, start in starts.items()
                    ]
                )
                return self._drain(consumer, set(starts), take)
            except KafkaException as error:
                message = f"changelog {self._changelog} could not be read: {error}"
                raise BrokerError(message, retryable=True) from error
            finally:
                consumer.unassign()

    def _drain(self, consumer: Consumer, open_partitions: set[int], take: Take) -> int:
        count = 0
        while open_partitions:
            if self._closing.is_set():
                raise BrokerError(
                    f"changelog {self._changelog} is not read to its end: "
                    "the stage was stopped meanwhile",
                    retryable=True,
                )
            found: list[Any] = consumer.consume(_CONSUME, _CONSUME_TIMEOUT_S)
            for message in found:
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        open_partitions.discard(message.partition())
                        continue
                    raise KafkaException(error)
                count += 1
                take(message.partition(), message.key(), message.value(), message.offset())
        return count

    def stable_end(self, partition: int) -> int:
        """The changelog's stable end offset."""
        return self._span(self._changelog, partition)[1]

    def mailbox_span(self, partition: int) -> tuple[int, int]:
        """First offset of a mailbox partition, and its stable end."""
        return self._span(self._source, partition)

    def _span(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        with self._lock:
            try:
                return ends_of(self._ready(), place, TIMEOUT_S)
            except KafkaException as error:
                message = f"the ends of {topic}/{partition} could not be read: {error}"
                raise BrokerError(message, retryable=True) from error

    def close(self) -> None:
        """Let go of the connection; a reading that is under way ends soon."""
        self._closing.set()
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None


def _committed(entry: TopicPartition) -> CommittedOffset:
    if entry.offset is None or entry.offset < 0:
        return CommittedOffset(-1, 0)
    seq = (entry.metadata or "").partition(":")[0]
    return CommittedOffset(entry.offset, int(seq) if seq.isdigit() else 0)
