"""Reads partitions that are this worker's, from chosen offsets on, on a thread of its own.

What to read is changed between two polls, in the order in which it was asked for.  The thread polls
again once the event loop has taken what the poll before it brought: so what a partition brings
before it is paused is bounded.

Source: DESIGN "A turn"; FINDINGS 2 for the consumer's settings.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from streams.errors import BrokerError
from streams.kafka import headers_of, make_consumer, right_missing
from streams.observe import logs
from streams.settings import Settings

__all__ = ["Feed", "Fetched", "Place"]

_LOG = logs.logger(__name__)

_POLL_S = 0.1
_RECORDS = 500
_QUEUED_KBYTES = 16_384
_STOP_S = 5.0

Place = tuple[str, int]
"""Topic and partition."""


class Fetched(NamedTuple):
    """A record as it was fetched, or the word that the end of its partition was met at `offset`.

    `ticket` is that of the assignment under which it was fetched.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    ticket: int
    at_end: bool = False


class Feed:
    """One consumer without a group; made and used inside one event loop.

    Args: take: is given what a poll brought, on the event loop.
          fail: is told why nothing more will come.
          ends: whether the ends of partitions are told.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        name: str,
        isolation: str,
        take: Callable[[list[Fetched]], None],
        fail: Callable[[BaseException], None],
        ends: bool = False,
    ) -> None:
        self._settings = settings
        self._name = name
        self._isolation = isolation
        self._take = take
        self._fail = fail
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self._asked: deque[Callable[[Consumer], None]] = deque()
        self._tickets: dict[Place, int] = {}  # the thread's
        self._taken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"turns-{name}", daemon=True)

    def start(self) -> None:
        """Begin to read what is asked for."""
        self._thread.start()

    async def stop(self) -> None:
        """Read nothing more; idempotent."""
        self._stopping.set()
        self._taken.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, _STOP_S)

    def read(self, offsets: Mapping[Place, int], ticket: int) -> None:
        """Read these places as well, from these offsets on."""

        def work(consumer: Consumer) -> None:
            self._tickets.update(dict.fromkeys(offsets, ticket))
            consumer.incremental_assign(
                [TopicPartition(topic, at, offset) for (topic, at), offset in offsets.items()]
            )
            # What was paused when it was dropped is so still: librdkafka keeps that apart.
            consumer.resume([TopicPartition(*place) for place in offsets])

        self._asked.append(work)

    def drop(self, places: Collection[Place], ticket: int) -> None:
        """Read these no more, if it is still this assignment."""

        def work(consumer: Consumer) -> None:
            gone = [place for place in places if self._tickets.get(place) == ticket]
            for place in gone:
                del self._tickets[place]
            if gone:
                consumer.incremental_unassign([TopicPartition(*place) for place in gone])

        self._asked.append(work)

    def pause(self, place: Place, ticket: int, *, paused: bool) -> None:
        """Read a place for a while no more, or again."""

        def work(consumer: Consumer) -> None:
            if self._tickets.get(place) == ticket:
                change = consumer.pause if paused else consumer.resume
                change([TopicPartition(*place)])

        self._asked.append(work)

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        try:
            consumer = make_consumer(
                self._settings,
                group_id=None,
                isolation=self._isolation,
                enable_partition_eof=self._ends,
                queued_max_messages_kbytes=_QUEUED_KBYTES,
                fetch_queue_backoff_ms=5,
                fetch_wait_max_ms=100,
            )
            try:
                while not self._stopping.is_set():
                    self._work(consumer)
            finally:
                consumer.close()
        except BaseException as error:  # noqa: BLE001 - a thread's end must be heard of
            if not self._stopping.is_set():
                self._loop.call_soon_threadsafe(self._fail, error)

    def _work(self, consumer: Consumer) -> None:
        while self._asked:
            self._asked.popleft()(consumer)
        first = consumer.poll(_POLL_S if self._tickets else _POLL_S / 4)
        if first is None:
            return
        messages = [first, *consumer.consume(_RECORDS - 1, 0)]
        found = [record for each in messages if (record := self._fetched(each)) is not None]
        if found:
            self._taken.clear()
            self._loop.call_soon_threadsafe(self._deliver, found)
            self._taken.wait()

    def _deliver(self, found: list[Fetched]) -> None:
        try:
            self._take(found)
        except BaseException as error:  # noqa: BLE001 - what cannot be taken ends the worker
            self._fail(error)
        finally:
            self._taken.set()

    def _fetched(self, message: Message) -> Fetched | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        ticket = self._tickets.get((topic or "", -1 if partition is None else partition))
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
            self._on_error(error)
            return None
        if ticket is None:
            return None  # dropped meanwhile
        assert topic is not None, "a record has a topic"
        assert partition is not None, "a record has a partition"
        assert offset is not None, "a record has an offset"
        if error is not None:
            return Fetched(topic, partition, offset, 0, None, None, [], ticket, at_end=True)
        key: Any = message.key()
        value: Any = message.value()
        headers = headers_of(message)
        timestamp_ms = message.timestamp()[1]
        return Fetched(topic, partition, offset, timestamp_ms, key, value, headers, ticket)

    def _on_error(self, error: KafkaError) -> None:
        remedy = right_missing(error)
        if error.fatal() or remedy is not None:
            message = f"{self._name} cannot be read: {error.name()}: {error.str()}"
            raise BrokerError(message, retryable=error.retriable(), remedy=remedy)
        _LOG.warning("turns_fetch_error", extra={"feed": self._name, "reason": str(error)})
