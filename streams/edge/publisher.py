"""The one way in which an edge appends to a topic: an idempotent producer whose acks are futures.

An edge may answer its caller only when the broker has the record on every in-sync replica; the
future of `append_soon` is resolved then, with the record's position.  Acks arrive on a thread of
their own and cross to the event loop in batches, one wake-up for all that one poll brought: a
wake-up per record costs more than producing it.

Invariants: every future resolves, also when the publisher is stopped; appends from one event loop
to one partition keep their order; nothing here is transactional (law 5: an edge's word is a fact,
and what repeats it is recognised by whoever folds it).  What may be lost although the client calls
it delivered is appended again, then behind what followed it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.core.record import Position
from streams.errors import BrokerError
from streams.kafka import make_producer
from streams.observe import logs
from streams.settings import Settings

__all__ = ["Publisher"]

_LOG = logs.logger(__name__)

# A poll without traffic ends often enough for stopping not to be felt, and costs nothing.
_POLL_S = 0.1
# Bounds what an outage of the broker can pile up in one process.
_QUEUE_RECORDS = 100_000
_QUEUE_KBYTES = 65_536
# The first metadata answer; a broker that was just started takes some seconds.
_CONNECT_TIMEOUT_S = 30.0
_PARTITION_BY_KEY = -1
_APPENDS_MAX = 3
"""How often a record is appended that the client calls delivered without knowing where."""

# What may succeed when it is tried again, besides what librdkafka itself calls retriable.
_OUTAGES = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - client-side codes are spelled with an underscore
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
        KafkaError._PURGE_QUEUE,  # noqa: SLF001
        KafkaError._QUEUE_FULL,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
    }
)

_Appended = asyncio.Future[Position]
_Acked = tuple[_Appended, Position | BrokerError]
_Headers = list[tuple[str, str | bytes | None]]


class _Record(NamedTuple):
    """What `Producer.produce` takes, in its order."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: _Headers


class Publisher:
    """Appends records; made and used inside one event loop.

    Args:    name: whose publisher it is, for logs and the client's thread.
             linger_ms: how long a record may wait for company.
             queue_records: records that may wait for their ack, at most; beyond it appends fail.
             connect_timeout_s: how long `start` waits for a broker.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        name: str,
        linger_ms: int = 1,
        queue_records: int = _QUEUE_RECORDS,
        connect_timeout_s: float = _CONNECT_TIMEOUT_S,
    ) -> None:
        self.name = name
        self._settings = settings
        self._linger_ms = linger_ms
        self._queue_records = queue_records
        self._connect_timeout_s = connect_timeout_s
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._producer: Producer | None = None
        self._acked: list[_Acked] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"publisher-{name}", daemon=True)
        self._stopped: asyncio.Future[None] = self._loop.create_future()

    async def start(self) -> None:
        """Connect.  Raises BrokerError(retryable=True) when no broker answers in time."""
        producer = make_producer(
            self._settings,
            linger_ms=self._linger_ms,
            queue_buffering_max_messages=self._queue_records,
            queue_buffering_max_kbytes=_QUEUE_KBYTES,
        )
        try:
            # Without it the first append of each topic waits for librdkafka's 0.5 s timers.
            await asyncio.to_thread(producer.list_topics, timeout=self._connect_timeout_s)
        except KafkaException as error:
            raise _broker_error("publisher", self.name, error.args[0]) from error
        self._producer = producer
        self._thread.start()

    async def stop(self) -> None:
        """Wait for the acks of what was appended, at most `drain_ms`; what has none then fails."""
        if not self._thread.is_alive():
            return
        self._stopping.set()
        await asyncio.shield(self._stopped)

    def append_soon(
        self,
        topic: str,
        *,
        kind: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> asyncio.Future[Position]:
        """Append one record; the future is its position, once the broker has acknowledged it.

        Args:    kind: becomes the header `kind`, before `headers`.
                 value: from `Codec.encode`; None, where the topic is compacted, forgets the key.
                 partition: where it must go, or None to let the key decide (murmur2).
        Returns: a future that fails with BrokerError: `retryable` when the local queue is full, no
                 ack came in time or the publisher is stopped (after a missing ack the record may
                 still be in the log), not `retryable` when the broker refused it.  Never raises.
        """
        appended: _Appended = self._loop.create_future()
        producer = self._producer
        if producer is None or self._stopping.is_set():
            appended.set_exception(
                BrokerError(f"publisher {self.name} is not running", retryable=True)
            )
            return appended
        where = _PARTITION_BY_KEY if partition is None else partition
        record = _Record(topic, value, key, where, [("kind", kind.encode()), *headers])
        refused = self._produce(producer, record, appended, _APPENDS_MAX - 1)
        if refused is not None:
            self._refuse(appended, refused)
        return appended

    async def append(
        self,
        topic: str,
        *,
        kind: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> Position:
        """Append one record and wait for its ack; arguments and errors as for `append_soon`."""
        return await self.append_soon(
            topic, kind=kind, value=value, key=key, headers=headers, partition=partition
        )

    def _produce(
        self, producer: Producer, record: _Record, appended: _Appended, again: int
    ) -> BrokerError | None:
        """Give a record to the client; return why it does not take it, and None when it does."""
        topic, value, key, partition, headers = record
        on_delivery = partial(self._on_delivery, record, appended, again)
        try:
            producer.produce(topic, value, key, partition, headers=headers, on_delivery=on_delivery)
        except BufferError:
            full = f"{topic}: {len(producer)} records of publisher {self.name} wait for the broker"
            return BrokerError(full, retryable=True)
        except KafkaException as error:
            return _broker_error(topic, self.name, error.args[0])
        return None

    def _on_delivery(
        self,
        record: _Record,
        appended: _Appended,
        again: int,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """Keep one delivery report until the poll that brought it returns (publisher's thread)."""
        if error is not None:
            self._acked.append((appended, _broker_error(record.topic, self.name, error)))
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None, "an acknowledged record has a partition"
        if offset is None:
            self._append_again(record, appended, again, partition)
            return
        self._acked.append((appended, Position(record.topic, partition, offset)))

    def _append_again(
        self, record: _Record, appended: _Appended, again: int, partition: int
    ) -> None:
        """Append once more what the client calls delivered without a position: it may be lost.

        After an answer that it could not use, the client takes the ack of what it sent next to the
        partition for both.  Yet a partition whose leader was only starting has refused the first,
        and to a producer that it does not know it does not say that anything is missing before the
        next.  (confluent-kafka-go issue 921)  What nobody waits for any more stays as it is: its
        sender may have said something else since.
        """
        if appended.done():
            return
        refused: BrokerError | None
        if again > 0:
            place = f"{record.topic}/{partition}"
            _LOG.info("record_appended_again", extra={"publisher": self.name, "partition": place})
            producer = self._producer
            assert producer is not None, "a record was delivered by it"
            refused = self._produce(producer, record, appended, again - 1)
        else:
            said = f"{record.topic}/{partition}: the broker does not say where the record is"
            refused = BrokerError(said, retryable=True)
        if refused is not None:
            self._acked.append((appended, refused))

    def _run(self) -> None:
        """Body of the publisher's thread."""
        producer = self._producer
        assert producer is not None, "the thread starts after the producer is made"
        try:
            self._poll_until_stopped(producer)
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._fail, error)
            raise
        finally:
            self._loop.call_soon_threadsafe(self._stopped.set_result, None)

    def _poll_until_stopped(self, producer: Producer) -> None:
        while not self._stopping.is_set():
            producer.poll(_POLL_S)
            self._hand_over()
        producer.flush(self._settings.drain_ms / 1_000)
        if len(producer):
            extra = {"publisher": self.name, "records": len(producer)}
            _LOG.warning("publisher_unacked", extra=extra)
            producer.purge()
            producer.flush(_POLL_S)
        self._hand_over()

    def _hand_over(self) -> None:
        if self._acked:
            acked, self._acked = self._acked, []
            self._loop.call_soon_threadsafe(self._settle, acked)

    def _settle(self, acked: list[_Acked]) -> None:
        for appended, outcome in acked:
            if appended.done():
                continue  # the caller gave up waiting
            if isinstance(outcome, Position):
                appended.set_result(outcome)
            else:
                self._refuse(appended, outcome)

    def _refuse(self, appended: _Appended, error: BrokerError) -> None:
        appended.set_exception(error)
        if isinstance(error, _FatalBrokerError):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


class _FatalBrokerError(BrokerError):
    """The producer cannot go on: a new process is needed."""


def _broker_error(topic: str, name: str, error: KafkaError) -> BrokerError:
    message = f"{topic}: append by {name} failed: {error.name()}: {error.str()}"
    if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001
        return _FatalBrokerError(message, retryable=True)
    return BrokerError(message, retryable=error.retriable() or error.code() in _OUTAGES)
