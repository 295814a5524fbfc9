"""Reads one partition of `worker.deliveries`, and hands on what is for this worker.

Workers share a partition: by a record's key it is known whose it is, and only its own are decoded.
The partition's end is read before the first heartbeat, so that nothing granted by it is missed.

Source: DESIGN "A job".
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.core.placement import partition_of
from streams.errors import BrokerError
from streams.kafka import ends_of, headers_of, make_consumer
from streams.observe import logs
from streams.settings import Settings
from topology.edges import WORKER

__all__ = ["DELIVERIES", "REQUESTS", "Delivered", "Deliveries", "DeliverySink", "KafkaDeliveries"]

_LOG = logs.logger(__name__)

DELIVERIES, _ = WORKER.reads
REQUESTS, _ = WORKER.writes

_POLL_S = 0.1
_RECORDS = 500
_TIMEOUT_S = 10.0

# What no waiting mends; librdkafka goes on trying after anything else.
_HOPELESS = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)


class Delivered(NamedTuple):
    """A record for this worker."""

    offset: int
    kind: str
    value: bytes
    cause: str = ""
    """The record that this one came of, and its number among what did."""


class DeliverySink(Protocol):
    """Told on the event loop."""

    def take(self, delivered: Sequence[Delivered]) -> None:
        """Records have come, in order."""
        ...

    def fail(self, error: BaseException) -> None:
        """Nothing comes any more."""
        ...


class Deliveries(Protocol):
    """Where grants come from."""

    partition: int
    """What a heartbeat names; known after `start`."""
    request_partitions: int
    """Partitions of the scheduler's mailbox; known after `start`."""

    async def start(self, sink: DeliverySink) -> None:
        """Return once everything that is granted from now on will come."""
        ...

    async def stop(self) -> None:
        """Hand on nothing more."""
        ...


class KafkaDeliveries:
    """Reads in a thread of its own, without a group."""

    def __init__(self, settings: Settings, consumer_id: str) -> None:
        self._settings = settings
        self._key = consumer_id.encode()
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-deliveries", daemon=True)
        self._consumer: Consumer | None = None
        self._sink: DeliverySink | None = None
        self.partition = 0
        self.request_partitions = 1

    async def start(self, sink: DeliverySink) -> None:
        """As the protocol says.  Raises BrokerError."""
        self._sink = sink
        await asyncio.to_thread(self._open)
        self._thread.start()

    async def stop(self) -> None:
        """As the protocol says; idempotent."""
        self._stopping.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, _TIMEOUT_S)

    def _open(self) -> None:
        consumer = make_consumer(self._settings, group_id=None)
        try:
            topics = consumer.list_topics(timeout=_TIMEOUT_S).topics
            counts = {name: len(topics[name].partitions) for name in (DELIVERIES, REQUESTS)}
            self.request_partitions = counts[REQUESTS]
            self.partition = partition_of(self._key, counts[DELIVERIES])
            place = TopicPartition(DELIVERIES, self.partition)
            _, place.offset = ends_of(consumer, place, _TIMEOUT_S)
            consumer.assign([place])
        except KeyError as error:
            consumer.close()
            remedy = "create it with `harn topology apply`"
            raise BrokerError(f"topic {error} is missing", retryable=False, remedy=remedy) from None
        except KafkaException as error:
            consumer.close()
            message = f"{DELIVERIES} cannot be read: {error.args[0].str()}"
            raise BrokerError(message, retryable=True) from error
        self._consumer = consumer

    def _run(self) -> None:
        consumer, sink = self._consumer, self._sink
        assert consumer is not None, "start comes before the thread"
        assert sink is not None, "start comes before the thread"
        try:
            while not self._stopping.is_set():
                mine = self._read(consumer)
                if mine:
                    self._loop.call_soon_threadsafe(sink.take, mine)
        except BaseException as error:  # noqa: BLE001 - a thread's end must be heard of
            self._loop.call_soon_threadsafe(sink.fail, error)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer) -> list[Delivered]:
        first = consumer.poll(_POLL_S)
        if first is None:
            return []
        mine: list[Delivered] = []
        for message in (first, *consumer.consume(_RECORDS, 0)):
            error = message.error()
            if error is not None:
                if error.fatal() or error.code() in _HOPELESS:
                    raise BrokerError(f"{DELIVERIES}: {error.str()}", retryable=False)
                _LOG.warning("worker_fetch_error", extra={"reason": error.str()})
                continue
            key: Any = message.key()
            if key == self._key:
                value: Any = message.value()
                kind, cause = _said(headers_of(message))
                mine.append(Delivered(message.offset() or 0, kind, value or b"", cause))
        return mine


def _said(headers: Any) -> tuple[str, str]:  # noqa: ANN401 - the client says more than it does
    """Return the headers `kind` and `cause`, empty where they are missing."""
    kind = cause = ""
    for name, content in headers or ():
        if name in ("kind", "cause"):
            text = content.decode(errors="replace") if isinstance(content, bytes) else str(content)
            kind, cause = (text, cause) if name == "kind" else (kind, text)
    return kind, cause
