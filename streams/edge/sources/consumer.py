"""Reads one trigger's topics: fetch, append envelopes, and only then move the group's place.

The consumer lives on a thread of its own.  What one round fetched is appended as a whole, and its
offsets are committed once the broker has all of it; whatever goes wrong in between, the records are
read again, and the inbox recognises what it has.

A topic that the group has no place in begins where the trigger says (`start`), and that place is
committed at once: a crash before the first record must not make `latest` mean something later.  A
partition that a topic got after the group had begun is read from its first record.

Source: DESIGN "Roles", ingest.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streams.core.stream_source import StreamSource
from streams.core.wire import SourceRejected
from streams.edge.sources.events import SourceEvent, SourceRecord
from streams.edge.sources.lag import LagObserver, SourceLag
from streams.errors import BrokerError
from streams.kafka import PASSING, ends_of, headers_of, make_consumer, places_of
from streams.observe import logs
from streams.settings import Settings

__all__ = ["Convert", "SourceConsumer", "SourceObserver", "SourceSink"]

_LOG = logs.logger(__name__)

# Idle wake-ups a second against how long a stop waits for the thread to look up.
_POLL_S = 0.5
_ROUND_RECORDS = 500
_ROUND_BYTES = 8_000_000
_FETCH_AHEAD_KBYTES = 8_192
# A topic that is made later, or grows, is noticed within that.
_METADATA_MS = 5_000
_TIMEOUT_S = 10.0
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0


class SourceSink(Protocol):
    """Where events go; called on the event loop."""

    async def append(self, made: Sequence[SourceEvent | SourceRejected]) -> None:
        """Return once the broker has all of it.  Raises BrokerError when it never will."""
        ...


class SourceObserver(LagObserver, Protocol):
    """What metrics want to know of sources; called from the sources' threads."""

    def took(self, trigger_id: str, *, events: int, rejected: int, passed_over: int) -> None:
        """Note what became of the records of one round, once it is in the log."""
        ...


Convert = Callable[[SourceRecord], SourceEvent | SourceRejected | None]


class SourceConsumer:
    """The consumer of one source; made and used inside one event loop.

    Args:    convert: makes an event of a record, or the word that it cannot be one, or None for one
             that is passed over; it may block, and raise BrokerError in an outage.
             group: the consumer group, when it is not the source's own.
    """

    def __init__(
        self,
        settings: Settings,
        source: StreamSource,
        sink: SourceSink,
        convert: Convert,
        *,
        group: str | None = None,
        observer: SourceObserver | None = None,
    ) -> None:
        self.source = source
        self._settings = settings
        self._sink = sink
        self._convert = convert
        self._group = source.group if group is None else group
        self._observer = observer
        self._lag = SourceLag(source.trigger_id, observer)
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._owned: set[tuple[str, int]] = set()
        self._stopping = threading.Event()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        name = f"source-{source.trigger_id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def assignment(self) -> frozenset[tuple[str, int]]:
        """Return the partitions that this member reads now."""
        return frozenset(self._owned)

    def start(self) -> None:
        """Begin to read; a broker or a topic that is away is waited for."""
        self._thread.start()

    async def stop(self) -> None:
        """Leave the group after what is under way, within the drain time; idempotent."""
        self._stopping.set()
        if self._thread.ident is not None:
            await asyncio.wait([self._stopped], timeout=max(self._settings.drain_ms / 1_000, 1.0))

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        try:
            backoff_s = _BACKOFF_FIRST_S
            while not self._stopping.is_set():
                began_s = time.monotonic()
                try:
                    self._read_until_stopped()
                except _Trouble as trouble:
                    # One trigger's topic is nobody else's trouble: the role goes on.
                    self._note_waiting(str(trouble))
                    if time.monotonic() - began_s > _BACKOFF_MAX_S:
                        backoff_s = _BACKOFF_FIRST_S
                    self._stopping.wait(backoff_s)
                    backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
        except BaseException as error:
            self._tell(self._fail, error)
            if not isinstance(error, BrokerError):
                raise
        finally:
            self._tell(self._stopped.set_result, None)

    def _read_until_stopped(self) -> None:
        consumer = make_consumer(
            self._settings,
            group_id=self._group,
            partition_assignment_strategy="cooperative-sticky",
            auto_offset_reset="earliest",
            queued_max_messages_kbytes=_FETCH_AHEAD_KBYTES,
            topic_metadata_refresh_interval_ms=_METADATA_MS,
        )
        self._lag.watch(consumer)
        try:
            consumer.subscribe(
                list(self.source.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_revoke,
            )
            while not self._stopping.is_set():
                self._round(consumer)
        except KafkaException as error:
            raise _Trouble(error.args[0].str()) from error
        finally:
            self._owned.clear()
            self._lag.end()
            consumer.close()

    def _note_waiting(self, reason: str) -> None:
        extra = {"trigger_id": self.source.trigger_id, "reason": reason}
        _LOG.warning("stream_source_waits", extra=extra)

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def _round(self, consumer: Consumer) -> None:
        """Fetch, append, commit."""
        self._lag.look()
        messages = list(self._fetch(consumer))
        made = [self._made(_record(message)) for message in messages]
        if self._stopping.is_set() or not messages:
            return  # nothing is committed, so the next member reads them
        self._append([each for each in made if each is not None])
        if self._stopping.is_set():
            return
        self._commit(consumer, messages)
        if self._observer is not None:
            events = sum(isinstance(each, SourceEvent) for each in made)
            passed_over = sum(each is None for each in made)
            self._observer.took(
                self.source.trigger_id,
                events=events,
                rejected=len(made) - events - passed_over,
                passed_over=passed_over,
            )

    def _fetch(self, consumer: Consumer) -> Iterable[Message]:
        """Yield what is there, up to a round's bounds."""
        size, wait_s = 0, _POLL_S
        for _ in range(_ROUND_RECORDS):
            message = consumer.poll(wait_s)
            if message is None:
                return
            error = message.error()
            if error is not None:
                self._on_error(error)
                continue
            wait_s = 0.0
            size += len(message.value() or b"")
            yield message
            if size >= _ROUND_BYTES:
                return

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() not in PASSING:
            raise _Trouble(f"{error.name()}: {error.str()}")
        self._note_waiting(error.str())

    def _made(self, record: SourceRecord) -> SourceEvent | SourceRejected | None:
        """Make an event; an outage of a schema registry is waited out."""
        backoff_s = _BACKOFF_FIRST_S
        while not self._stopping.is_set():
            try:
                return self._convert(record)
            except BrokerError as error:
                self._note_waiting(str(error))
                self._lag.look()
                self._stopping.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
        return None

    def _append(self, made: Sequence[SourceEvent | SourceRejected]) -> None:
        """Return once all is in the log, or when stopping."""
        if not made:
            return
        appending = asyncio.run_coroutine_threadsafe(self._sink_append(made), self._loop)
        while True:
            try:
                appending.result(_POLL_S)
            except TimeoutError:
                if appending.done():
                    raise  # the sink's own
                if self._stopping.is_set():
                    appending.cancel()
                    return
                self._lag.look()
            else:
                return

    async def _sink_append(self, made: Sequence[SourceEvent | SourceRejected]) -> None:
        await self._sink.append(made)

    def _commit(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Move the group's place; of partitions that went meanwhile the next member has it."""
        places: dict[tuple[str, int], int] = {}
        for message in messages:
            topic, partition, offset = _place(message)
            if (topic, partition) in self._owned:
                places[topic, partition] = offset + 1
        if not places:
            return
        positions = [TopicPartition(*place, offset) for place, offset in places.items()]
        try:
            consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            # They are read again, by us or by another member, and recognised.
            extra = {"trigger_id": self.source.trigger_id, "reason": str(error.args[0])}
            _LOG.warning("stream_source_commit_failed", extra=extra)
        else:
            self._lag.stand(places)

    # ------------------------------------------------------------------ rebalances
    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        taken = {(each.topic, each.partition) for each in partitions}
        for topic in sorted({topic for topic, _ in taken}):
            settled = self._settle_places(consumer, topic)
            self._lag.stand({each: settled[each] for each in taken if each in settled})
        consumer.incremental_assign(partitions)
        self._owned |= taken
        extra = {"trigger_id": self.source.trigger_id, "partitions": len(self._owned)}
        _LOG.info("stream_source_assigned", extra=extra)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        left = {(each.topic, each.partition) for each in partitions}
        self._owned -= left
        self._lag.leave(left)

    def _settle_places(self, consumer: Consumer, topic: str) -> dict[tuple[str, int], int]:
        """Give every partition of a topic in which the group has no place one, and commit it.

        Returns: where the group then stands in each of them.
        """
        numbers = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        every = [TopicPartition(topic, number) for number in sorted(numbers)]
        known = places_of(consumer, every, _TIMEOUT_S)
        begins = all(each.offset < 0 for each in known)
        fresh: list[TopicPartition] = []
        for each in known:
            first, end = ends_of(consumer, each, _TIMEOUT_S)
            if each.offset < 0:
                # The topic grew after the group had begun: what came since is not to be missed.
                from_end = begins and self.source.start == "latest"
                fresh.append(TopicPartition(topic, each.partition, end if from_end else first))
            elif each.offset < first:
                extra = {
                    "trigger_id": self.source.trigger_id,
                    "position": f"{topic}/{each.partition}/{each.offset}",
                    "records": first - each.offset,
                }
                _LOG.error("stream_source_records_lost", extra=extra)
        if fresh:
            consumer.commit(offsets=fresh, asynchronous=False)
        settled = [each for each in known if each.offset >= 0] + fresh
        return {(topic, each.partition): each.offset for each in settled}


class _Trouble(Exception):  # noqa: N818 - it passes, or an operator mends it
    """The topics cannot be read now."""


def _place(message: Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a fetched record has a topic"
    assert partition is not None, "a fetched record has a partition"
    assert offset is not None, "a fetched record has an offset"
    return topic, partition, offset


def _record(message: Message) -> SourceRecord:
    topic, partition, offset = _place(message)
    _, timestamp_ms = message.timestamp()
    key: Any = message.key()
    value: Any = message.value()
    return SourceRecord(topic, partition, offset, timestamp_ms, key, value, headers_of(message))
