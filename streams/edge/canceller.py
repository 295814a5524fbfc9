"""Copy each cancel request into every dispatch partition: only the one with the dispatch acts.

    trigger.cancel.requests (group harn.canceller) → every partition of trigger.dispatches, acked
                                                   → offset committed

A request is copied at least once: who dies between copying and committing leaves it to the next
member, and a fold takes a repeat as nothing.  What is no request is named in the log and passed
over; its record stays where it is.

Source: SEMANTICS 2.5; DESIGN 3, "Roles".
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from streams.codec import Codec, DecodeError
from streams.core.inbox import DISPATCHES
from streams.core.record import Position
from streams.edge.follower import BACKOFF_FIRST_S, BACKOFF_MAX_S, Follower
from streams.edge.publisher import Publisher
from streams.errors import BrokerError, TopologyError
from streams.kafka import make_consumer
from streams.observe import logs
from streams.settings import Settings

__all__ = ["GROUP", "KIND", "REQUESTS", "Canceller"]

REQUESTS = "trigger.cancel.requests"
GROUP = "harn.canceller"
KIND = "dispatch_cancel_requested"

_LOG = logs.logger(__name__)

_READ_S = 0.5
_BATCH_MAX = 100  # each becomes a record in every partition
_REQUEST_BYTES_MAX = 10_000  # far above what ids can fill
_START_TIMEOUT_S = 30.0


class Canceller(Follower):
    """Follows the cancel requests; an `EdgeService`.

    Args:    publisher: started and stopped by whoever made it, around this service.
    """

    name = "canceller"

    def __init__(self, settings: Settings, publisher: Publisher, codec: Codec) -> None:
        super().__init__(settings)
        self._publisher = publisher
        self._codec = codec
        self._consumer: Consumer | None = None

    async def start(self) -> None:
        """Join the group.  Raises TopologyError without the topic, BrokerError without a broker."""
        self._consumer = await self._in_thread(self._open)
        self._begin(self._follow(self._consumer))

    async def stop(self) -> None:
        """Stop between two batches and leave the group; idempotent."""
        await self._end()
        if self._consumer is not None:
            await self._in_thread(self._consumer.close)
            self._consumer = None
        self._thread.shutdown(wait=False)

    def _open(self) -> Consumer:
        consumer = make_consumer(
            self._settings,
            group_id=GROUP,
            partition_assignment_strategy="cooperative-sticky",
            fetch_wait_max_ms=500,  # next to nothing when it is idle
        )
        try:
            found = consumer.list_topics(REQUESTS, timeout=_START_TIMEOUT_S).topics[REQUESTS]
        except KafkaException as error:
            consumer.close()
            raise _failure(error.args[0]) from error
        if found.error is not None:
            consumer.close()
            raise _failure(found.error)
        consumer.subscribe([REQUESTS])
        return consumer

    async def _follow(self, consumer: Consumer) -> None:
        while not self._stopping.is_set():
            messages = await self._in_thread(consumer.consume, _BATCH_MAX, _READ_S)
            records = [message for message in messages if _is_record(message)]
            if records and await self._copied(records):
                await self._commit(consumer, records)

    async def _copied(self, records: Sequence[Message]) -> bool:
        """Copy what is a request until the broker has it; False when stopped meanwhile."""
        requests = [record for record in records if self._takes(record)]
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                copies = [self._copy(request) for request in requests]
                await asyncio.gather(*(append for appends in copies for append in appends))
            except BrokerError as error:
                if not error.retryable:
                    raise
                _LOG.warning("cancel_delayed", extra={"reason": str(error), "wait_s": backoff_s})
                await self._pause(backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
                if self._stopping.is_set():
                    return False
            else:
                return True

    def _copy(self, request: Message) -> list[asyncio.Future[Position]]:
        value = request.value()
        assert isinstance(value, bytes), "it was decoded"
        cause = str(_position(request)).encode()
        return [
            self._publisher.append_soon(
                DISPATCHES,
                kind=KIND,
                value=value,
                key=b"\0cancel",  # no event's: ids hold no NUL
                headers=[("cause", cause)],
                partition=partition,
            )
            for partition in range(self._settings.partitions)
        ]

    def _takes(self, record: Message) -> bool:
        """Whether a record is a request; what is none is named."""
        value = record.value() or b""
        problem = f"it has {len(value)} bytes, expected at most {_REQUEST_BYTES_MAX}"
        if len(value) <= _REQUEST_BYTES_MAX:
            try:
                schema, _ = self._codec.decode(value)
            except DecodeError as error:
                problem = str(error)
            else:
                if schema == KIND:
                    return True
                problem = f"it is a {schema}, expected a {KIND}"
        extra = {"position": str(_position(record)), "reason": problem}
        _LOG.warning("cancel_request_refused", extra=extra)
        return False

    async def _commit(self, consumer: Consumer, records: Sequence[Message]) -> None:
        """Commit what was copied; what was lost meanwhile is copied again by its next owner."""
        try:
            for record in records:
                consumer.store_offsets(record)
            await self._in_thread(lambda: consumer.commit(asynchronous=False))
        except KafkaException as error:
            extra = {"reason": error.args[0].str(), "wait_s": 0}
            _LOG.warning("cancel_delayed", extra=extra)


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.fatal():
        raise _failure(error)
    _LOG.warning("cancel_delayed", extra={"reason": error.str(), "wait_s": 0})
    return False


def _position(record: Message) -> Position:
    partition, offset = record.partition(), record.offset()
    assert partition is not None, "a fetched record has a partition"
    assert offset is not None, "a fetched record has an offset"
    return Position(REQUESTS, partition, offset)


def _failure(error: KafkaError) -> BrokerError | TopologyError:
    if error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:  # noqa: SLF001
        return TopologyError(f"topic {REQUESTS} is missing", remedy="run `harn topology apply`")
    return BrokerError(f"{REQUESTS}: {error.name()}: {error.str()}", retryable=True)
