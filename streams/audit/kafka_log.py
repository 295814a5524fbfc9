"""The log of a cluster, for the auditor: it reads, and leaves nothing behind.

No group is joined and nothing is committed.  Consumers are kept for the next partition, since a new
one spends a tenth of a second on its connection.

Source: FINDINGS 2, 14 (timers of librdkafka), DESIGN "Proof".
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from types import TracebackType
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from streams.audit.log import LogRecord, Place, Span
from streams.closable import Closable
from streams.errors import BrokerError
from streams.kafka import (
    COORDINATOR_SOON,
    PASSING,
    headers_of,
    make_admin,
    make_asker,
    make_consumer,
    places_of,
    right_missing,
)
from streams.settings import Settings

__all__ = ["KafkaLog"]

_EARLIEST: Any = OffsetSpec.earliest()
_LATEST: Any = OffsetSpec.latest()
_REQUEST_S = 30.0
_ATTEMPT_S = 3.0
_SILENCE_S = 30.0
"""A partition that has more, but says nothing for so long, counts as out of reach."""

_CLUSTER = "check KAFKA_BOOTSTRAP_SERVERS and that the cluster is up"
_OFFSET = attrgetter("offset")
_POLL_S = 1.0
_LIST_MAX = 10_000
_DECIDED_POLL_S = 0.05
_DECIDED_MARGIN_S = 10.0
"""Beyond the transaction's own time: the broker looks for overdue ones now and then."""


class KafkaLog(Closable):
    """Implements `streams.audit.log.LogReader` for one thread; its `with` block closes it."""

    def __init__(self, settings: Settings, *, patience_s: float | None = None) -> None:
        """Prepare to read.

        Args: patience_s: how long an open transaction is waited for; None is as long as one of our
              owners may keep it open.
        """
        overdue_s = settings.transaction_timeout_ms / 1000 + _DECIDED_MARGIN_S
        self._patience_s = overdue_s if patience_s is None else patience_s
        self._settings = settings
        self._admin = make_admin(settings)
        self._idle: list[Consumer] = []
        self._askers: dict[str, Consumer] = {}  # by group
        self._counts: Mapping[str, int] | None = None

    def close(self) -> None:
        """Close every connection."""
        while self._idle:
            self._idle.pop().close()
        while self._askers:
            self._askers.popitem()[1].close()

    def partitions(self, topic: str, /) -> int:
        """See `LogReader.partitions`; the cluster is asked once."""
        return self._known().get(topic, 0)

    def topic_names(self) -> frozenset[str]:
        """See `LogReader.topic_names`; the cluster is asked once."""
        return frozenset(self._known())

    def _known(self) -> Mapping[str, int]:
        if self._counts is None:
            with _outages("the topics"):
                topics = self._admin.list_topics(timeout=_REQUEST_S).topics
            self._counts = {name: len(found.partitions) for name, found in topics.items()}
        return self._counts

    # ------------------------------------------------------------------ ends
    def spans(self, places: Collection[Place], /) -> dict[Place, Span]:
        """See `LogReader.spans`; BrokerError when a transaction stays open for too long."""
        starts = self._offsets(places, _EARLIEST)
        ends = self._offsets(places, _LATEST)
        deadline_s = time.monotonic() + self._patience_s
        undecided: Collection[Place] = places
        while undecided := self._undecided(undecided, ends):
            if time.monotonic() > deadline_s:
                named = ", ".join(f"{topic}/{partition}" for topic, partition in undecided)
                raise BrokerError(
                    f"a transaction in {named} is open for more than {self._patience_s:g} s",
                    retryable=True,
                    remedy="look for a stopped owner: the broker aborts its transaction in the end",
                )
            time.sleep(_DECIDED_POLL_S)
        return {place: Span(starts[place], ends[place]) for place in places}

    def _undecided(self, places: Collection[Place], ends: Mapping[Place, int]) -> list[Place]:
        stable = self._offsets(places, _LATEST, IsolationLevel.READ_COMMITTED)
        return [place for place in places if stable[place] < ends[place]]

    def _offsets(
        self,
        places: Collection[Place],
        spec: Any,  # noqa: ANN401 - its kinds share no type
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[Place, int]:
        if not places:
            return {}
        with _outages("offsets"):
            asked = {TopicPartition(topic, partition): spec for topic, partition in places}
            answers = self._admin.list_offsets(
                asked, isolation_level=isolation, request_timeout=_REQUEST_S
            )
            return {
                (place.topic, place.partition): future.result(_REQUEST_S).offset
                for place, future in answers.items()
            }

    def offset_at(self, place: Place, timestamp_ms: int, /) -> int:
        """See `LogReader.offset_at`."""
        offset = self._offsets([place], OffsetSpec.for_timestamp(timestamp_ms))[place]
        return offset if offset >= 0 else self._offsets([place], _LATEST)[place]

    def committed(self, group: str, topic: str, partitions: Collection[int], /) -> dict[int, int]:
        """See `LogReader.committed`."""
        asker = self._askers.get(group)
        if asker is None:
            asker = self._askers[group] = make_asker(self._settings, group, stable=True)
        asked = [TopicPartition(topic, partition) for partition in partitions]
        deadline_s = time.monotonic() + _REQUEST_S
        while True:
            with _outages(f"the offsets of group {group}"):
                try:
                    # A request to a broker that is only now making its offsets topic is never
                    # answered; the next one is, at once.
                    found = places_of(asker, asked, _ATTEMPT_S)
                except KafkaException as error:
                    if time.monotonic() > deadline_s or not _passes(error):
                        raise
                else:
                    return {each.partition: each.offset for each in found if each.offset >= 0}

    # ------------------------------------------------------------------ records
    def read(self, place: Place, start: int, end: int, /) -> Iterator[list[LogRecord]]:
        """See `LogReader.read`."""
        if start >= end:
            return
        with _outages(f"{place[0]}/{place[1]}"):
            consumer = self._idle.pop() if self._idle else self._make_consumer()
            try:
                consumer.assign([TopicPartition(*place, start)])
                yield from _until(consumer, place, end)
            finally:
                consumer.unassign()
                self._idle.append(consumer)

    def _make_consumer(self) -> Consumer:
        consumer = make_consumer(
            self._settings,
            group_id=None,
            enable_partition_eof=True,
            # A head that retention takes while it is read must not be passed over silently.
            auto_offset_reset="error",
            # An end is told by an empty answer: it should not be waited for.
            fetch_wait_max_ms=10,
            queued_min_messages=100_000,
            queued_max_messages_kbytes=32_768,
            fetch_message_max_bytes=4_000_000,
        )
        # A consumer that knows all topics and has its connection up reads at once; one that does
        # not waits for a timer of a second with every new topic.
        consumer.list_topics(timeout=_REQUEST_S)
        return consumer


def _passes(error: KafkaException) -> bool:
    """Whether the same request may succeed a moment later."""
    reason: KafkaError = error.args[0]
    soon = COORDINATOR_SOON | {KafkaError._TIMED_OUT}  # noqa: SLF001 - its name
    return reason.retriable() or reason.code() in soon


def _until(consumer: Consumer, place: Place, end: int) -> Iterator[list[LogRecord]]:
    heard_s = time.monotonic()
    while True:
        first = consumer.poll(_POLL_S)
        if first is None:
            if time.monotonic() - heard_s > _SILENCE_S:
                message = f"{place[0]}/{place[1]} has said nothing for {_SILENCE_S:.0f} s"
                raise BrokerError(message, retryable=True)
            continue
        heard_s = time.monotonic()
        records, ended = _records([first, *consumer.consume(_LIST_MAX, 0)], end)
        if records:
            yield records
        if ended:
            return


def _records(messages: list[Message], end: int) -> tuple[list[LogRecord], bool]:
    """Return the records before `end`, and whether there are no more."""
    found: list[Any] = [message for message in messages if message.error() is None]
    records = [
        LogRecord(
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            headers_of(message),
        )
        for message in found
    ]
    # Offsets up to `end` are stable, so that the partition's own end is at or after it.
    ended = len(found) < len(messages) and _ends(messages)
    if records and records[-1].offset >= end - 1:
        return records[: bisect_left(records, end, key=_OFFSET)], True
    return records, ended


def _ends(messages: list[Message]) -> bool:
    """Whether the end of the partition is among the messages; raise for anything worse."""
    for message in messages:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
            raise KafkaException(error)
    return True


class _outages:  # noqa: N801 - reads as a statement
    """Turns what the client raises into BrokerError, naming what was asked for."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, KafkaException):
            reason: KafkaError = error.args[0]
            outage = reason.retriable() or reason.code() in PASSING
            raise BrokerError(
                f"{self._what} could not be read: {reason.str()}",
                retryable=outage,
                remedy=_CLUSTER if outage else right_missing(reason),
            ) from error
        if isinstance(error, TimeoutError):
            raise BrokerError(
                f"{self._what} could not be read in {_REQUEST_S:.0f} s",
                retryable=True,
                remedy=_CLUSTER,
            ) from error
