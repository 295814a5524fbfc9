"""One topic read from chosen offsets on, without a group: nothing is committed, nobody rebalances.

The registry's followers and `harn log` read in this way.  By default only committed records are
seen, and the end is the stable end: what an open transaction holds back comes later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streams.closable import Closable
from streams.errors import BrokerError, TopologyError
from streams.kafka import ends_of, headers_of, make_admin, make_consumer, right_missing
from streams.settings import Settings

__all__ = [
    "LONG_WAIT_MS",
    "SHORT_WAIT_MS",
    "ReadRecord",
    "TopicReader",
    "require_topic",
    "topic_names",
]

SHORT_WAIT_MS = 20
"""For reading to the end."""

LONG_WAIT_MS = 500
"""For following a topic: next to nothing when it is idle."""

_TIMEOUT_S = 10.0
_RECORDS = 1_000

# librdkafka goes on trying by itself after these; whoever waits has a deadline of its own.
_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - client-side codes are spelled with an underscore
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
    }
)
_MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001
)


class ReadRecord(NamedTuple):
    """One record as it lies in the log; `timestamp` is ms since epoch, `value` None a tombstone."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]

    @property
    def kind(self) -> str:
        """Return the header `kind`, or nothing when there is none."""
        found = [content for name, content in self.headers if name == "kind"]
        return found[0].decode(errors="replace") if found else ""


class TopicReader(Closable):
    """Reads partitions of one topic; use it as a context, in one thread.

    `wait_ms` is how long the broker may hold an answer back while nothing is new: an end is noticed
    that late, and whoever follows a topic asks that often.  What is new is answered at once.

    Raises TopologyError when the topic is missing, BrokerError when no broker answers within 10 s.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        committed_only: bool = True,
        wait_ms: int = SHORT_WAIT_MS,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._consumer: Consumer = make_consumer(
            settings,
            group_id=None,
            isolation="read_committed" if committed_only else "read_uncommitted",
            enable_partition_eof=True,
            fetch_wait_max_ms=wait_ms,
        )
        try:
            self.partitions = self.count()
        except BaseException:
            self.close()
            raise
        self._open: set[int] = set()

    @property
    def at_end(self) -> bool:
        """Whether every partition has been read to its end; more may have come since."""
        return not self._open

    @property
    def unfinished(self) -> frozenset[int]:
        """Return the partitions that were not read to their end yet, as far as is known."""
        return frozenset(self._open)

    def start_at(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from these offsets; the others are left out."""
        self._open = set(offsets)
        self._consumer.assign(
            [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        )

    def read(self, timeout_s: float) -> list[ReadRecord]:
        """Return what is there next; nothing when the time is over or an end is reached.

        Records of one partition are in offset order.
        """
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        found = [first, *self._consumer.consume(_RECORDS, 0)]
        return [record for message in found if (record := self._take(message)) is not None]

    def watermarks(self, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last."""
        try:
            return ends_of(self._consumer, TopicPartition(self.topic, partition), _TIMEOUT_S)
        except KafkaException as error:
            raise self._failure(error.args[0]) from error

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        """Return, per partition, the first offset whose record is that young; its end if none."""
        wanted = [
            TopicPartition(self.topic, partition, timestamp_ms)
            for partition in range(self.partitions)
        ]
        try:
            found = self._consumer.offsets_for_times(wanted, timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        return {
            entry.partition: entry.offset
            if entry.offset >= 0
            else self.watermarks(entry.partition)[1]
            for entry in found
        }

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def count(self) -> int:
        """Return how many partitions the topic has now."""
        try:
            # Also brings the connection up: the first fetch would wait for it for a second.
            found = self._consumer.list_topics(self.topic, timeout=_TIMEOUT_S).topics[self.topic]
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        if found.error is not None:
            raise self._failure(found.error)
        return len(found.partitions)

    def _take(self, message: Message) -> ReadRecord | None:
        error = message.error()
        partition, offset = message.partition(), message.offset()
        if error is None:
            assert partition is not None, "a record has a partition"
            assert offset is not None, "a record has an offset"
            self._open.add(partition)
            return ReadRecord(
                partition,
                offset,
                message.timestamp()[1],
                _bytes(message.key()),
                _bytes(message.value()),
                [(name, _bytes(content) or b"") for name, content in headers_of(message)],
            )
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            assert partition is not None, "an end has a partition"
            self._open.discard(partition)
        elif not error.retriable() and error.code() not in _PASSING:
            raise self._failure(error)
        return None

    def _failure(self, error: KafkaError) -> BrokerError | TopologyError:
        return _failure(self._settings, self.topic, error)


def _failure(settings: Settings, topic: str, error: KafkaError) -> BrokerError | TopologyError:
    if error.code() in _MISSING:
        return TopologyError(
            f"topic {topic} is missing at {settings.bootstrap}",
            remedy="run `harn topology apply`; where there are ACLs, this user may not see it: "
            "`harn topology acls` prints what each role needs",
        )
    message = f"{topic} at {settings.bootstrap} cannot be reached: {error.str()}"
    outage = error.retriable() or error.code() in _PASSING
    cluster = "check KAFKA_BOOTSTRAP_SERVERS and that the cluster is up"
    remedy = cluster if outage else right_missing(error)
    return BrokerError(message, retryable=outage, remedy=remedy)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def require_topic(settings: Settings, topic: str) -> None:
    """Raise TopologyError when the topic is missing, BrokerError when no broker answers."""
    admin = make_admin(settings)
    try:
        found = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise _failure(settings, topic, error.args[0]) from error
    if found.error is not None:
        raise _failure(settings, topic, found.error)


def topic_names(settings: Settings) -> tuple[str, ...]:
    """Return the names of the cluster's topics, sorted.  Raises BrokerError."""
    try:
        return tuple(sorted(make_admin(settings).list_topics(timeout=_TIMEOUT_S).topics))
    except KafkaException as error:
        message = f"{settings.bootstrap} does not list its topics: {error.args[0].str()}"
        raise BrokerError(message, retryable=True) from error
