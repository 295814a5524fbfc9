"""Where intents come from: the group's consumer on a thread of its own, and what it asks of a sink.

librdkafka's poll blocks, so it has a thread; what one poll brought crosses to the event loop in one
hop.  The thread takes no more than there is room for: the handlers that may run at once, and four
times as many intents that wait, so that one slow trigger does not hide the others behind it.  When
there is no room for a while, it pauses its partitions and goes on polling: a member that stops
polling is put out of the group.

Who stops or loses a partition first lets the sink settle it, on the event loop, within half a
session timeout; then the offsets that the sink names are committed, and only then is it given up.

Source: DESIGN "An invocation", "Roles"; FINDINGS 2 for the consumer's settings.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streams.errors import BrokerError
from streams.kafka import headers_of, make_consumer
from streams.observe import logs
from streams.settings import Settings

__all__ = ["GROUP", "TOPIC", "FetchedIntent", "Intake", "IntentSink", "KafkaIntake"]

GROUP = "harn.invoker"
TOPIC = "trigger.invocations"

_LOG = logs.logger(__name__)

# Idle wake-ups a second against how long a stop waits for the thread to look up.
_POLL_S = 0.1
# Full, the thread looks up so often; it takes one intent more each time, and pauses after so many:
# pausing throws away what was fetched ahead, and a busy event loop makes room late.
_FULL_S = 0.1
_FULL_TIMES = 10
# Once there is room again it waits for more of it: one by one, intents would cost the event loop a
# wake-up each, and the thread the interpreter.
_GATHER_S = 0.005
# Intents that may wait for each that runs, and what all may hold.
_AHEAD = 4
_HELD_BYTES_MAX = 64_000_000
# Bounds how long the event loop decodes and starts intents without looking up.
_BATCH_MAX = 500
_START_TIMEOUT_S = 30.0
# The loop answers a settlement in time unless a handler blocks it; then nothing can be said for it.
_LOOP_ANSWER_S = 5.0


class FetchedIntent(NamedTuple):
    """A record of the intents topic as it was fetched; `headers` may hold several of one name."""

    partition: int
    offset: int
    value: bytes
    headers: Sequence[tuple[str, bytes]]


class IntentSink(Protocol):
    """What takes the intents; every method is called on the event loop, in the order of events."""

    def take(self, intents: Sequence[FetchedIntent]) -> None:
        """Take intents; `Intake.release` is called once for each of them."""
        ...

    async def settle(self, partitions: Sequence[int], timeout_s: float) -> Mapping[int, int]:
        """Prepare partitions for their next owner; return where that one shall begin."""
        ...

    def lose(self, partitions: Sequence[int]) -> None:
        """Forget partitions that another member may own already; nothing can be committed."""
        ...

    def commit_failed(self, partitions: Sequence[int]) -> None:
        """Commit these again: the broker did not take the last commit."""
        ...

    def fail(self, error: BaseException) -> None:
        """No more intents will come."""
        ...


class Intake(Protocol):
    """A source of intents; methods are called on the event loop."""

    async def start(self, sink: IntentSink) -> None:
        """Begin to deliver."""
        ...

    async def stop(self) -> None:
        """Settle and give up every partition; nothing is delivered afterwards."""
        ...

    def release(self, size: int) -> None:
        """Say that one delivered intent, of `size` bytes, needs no room any more."""
        ...

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit soon, without waiting; `offsets` is the next offset by partition."""
        ...


class KafkaIntake:
    """The group's consumer.

    Args:    settings: `invoker_max_outstanding` decides about the room.  topic, group: for tests.
    """

    def __init__(self, settings: Settings, *, topic: str = TOPIC, group: str = GROUP) -> None:
        self._settings = settings
        self._topic = topic
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._sink: IntentSink | None = None
        self._consumer: Consumer | None = None
        self._owned: set[int] = set()
        self._paused = False
        self._taken = self._taken_bytes = 0  # written by the thread
        self._released = self._released_bytes = 0  # written by the loop
        self._wanted: dict[int, int] = {}  # offsets to commit, asked for by the loop
        self._wanted_lock = threading.Lock()
        self._delayed: set[int] = set()  # partitions whose last commit was refused, as was told
        self._has_room = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="invoker-intake", daemon=True)
        self._stopped: asyncio.Future[None] = self._loop.create_future()

    @property
    def assignment(self) -> frozenset[int]:
        """Return the partitions that this member owns now."""
        return frozenset(self._owned)

    @property
    def paused(self) -> bool:
        """Return whether fetching waits for room."""
        return self._paused

    async def start(self, sink: IntentSink) -> None:
        """Join the group.  Raises BrokerError when no broker answers or the topic is missing."""
        self._sink = sink
        consumer = make_consumer(
            self._settings,
            group_id=self._group,
            partition_assignment_strategy="cooperative-sticky",
            # Intents fetched ahead are bounded by bytes; a full queue is looked at again soon, not
            # after librdkafka's default of a second.
            queued_max_messages_kbytes=16_384,
            fetch_queue_backoff_ms=5,
            on_commit=self._on_commit,
        )
        try:
            found = await asyncio.to_thread(
                consumer.list_topics, self._topic, timeout=_START_TIMEOUT_S
            )
        except KafkaException as error:
            raise _broker_error(self._topic, error.args[0]) from error
        problem = found.topics[self._topic].error
        if problem is not None:
            raise _broker_error(self._topic, problem)
        consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        self._consumer = consumer
        self._thread.start()

    async def stop(self) -> None:
        """Settle every partition, commit and leave the group."""
        if self._thread.ident is None:
            return
        self._stopping.set()
        self._has_room.set()
        await asyncio.shield(self._stopped)

    def release(self, size: int) -> None:
        """Say that one delivered intent, of `size` bytes, needs no room any more."""
        self._released += 1
        self._released_bytes += size
        if not self._has_room.is_set():
            self._has_room.set()

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit soon, without waiting."""
        with self._wanted_lock:
            self._wanted.update(offsets)

    def _commit_wanted(self, consumer: Consumer) -> None:
        """Commit what the loop asked for.

        Only this thread may: a commit from another one can wait, holding the interpreter, for a
        lock that a poll holds while it waits for the interpreter.
        """
        with self._wanted_lock:
            wanted, self._wanted = self._wanted, {}
        offsets = {p: offset for p, offset in wanted.items() if p in self._owned}
        if not offsets:
            return
        try:
            consumer.commit(offsets=self._positions(offsets), asynchronous=True)
        except KafkaException as error:
            self._commit_failed(sorted(offsets), error.args[0])

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        consumer = self._consumer
        assert consumer is not None, "the thread starts after the consumer is made"
        try:
            self._deliver_until_stopped(consumer)
            self._give_up(consumer, sorted(self._owned))
            consumer.close()
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._the_sink.fail, error)
            raise
        finally:
            self._loop.call_soon_threadsafe(self._stopped.set_result, None)

    def _deliver_until_stopped(self, consumer: Consumer) -> None:
        while not self._stopping.is_set():
            self._commit_wanted(consumer)
            self._wait_for_room(consumer)
            first = None if self._stopping.is_set() else consumer.poll(_POLL_S)
            if first is None:
                continue
            room = min(self._room(), _BATCH_MAX)
            more = consumer.consume(room - 1, 0) if room > 1 else []
            self._deliver([first, *more])

    def _room(self) -> int:
        if self._taken_bytes - self._released_bytes >= _HELD_BYTES_MAX:
            return 0
        room = self._settings.invoker_max_outstanding * (1 + _AHEAD)
        return room - (self._taken - self._released)

    def _wait_for_room(self, consumer: Consumer) -> None:
        """Return when there is room, or when stopping."""
        if self._room() > 0:
            return
        times = 0
        while self._room() <= 0 and not self._stopping.is_set():
            self._has_room.clear()
            if self._room() > 0 or self._has_room.wait(_FULL_S):
                continue
            times += 1
            if times >= _FULL_TIMES and not self._paused:
                consumer.pause(consumer.assignment())
                self._paused = True
            arrived = consumer.poll(0)
            if arrived is not None:
                self._deliver([arrived])
        if self._paused:
            consumer.resume(consumer.assignment())
            self._paused = False
        self._stopping.wait(_GATHER_S)

    def _deliver(self, messages: Sequence[Message]) -> None:
        intents: list[FetchedIntent] = []
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_error(error)
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None, "a fetched record has a partition"
            assert offset is not None, "a fetched record has an offset"
            # A batch may span a rebalance: what was given up meanwhile is its next owner's.
            if partition in self._owned:
                value: Any = message.value() or b""
                intents.append(FetchedIntent(partition, offset, value, headers_of(message)))
        if intents:
            self._taken += len(intents)
            self._taken_bytes += sum(len(intent.value) for intent in intents)
            self._loop.call_soon_threadsafe(self._the_sink.take, intents)

    def _on_error(self, error: KafkaError) -> None:
        """Raise what no waiting mends; librdkafka goes on trying after anything else."""
        hopeless = (
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        )
        if error.fatal() or error.code() in hopeless:
            raise _broker_error(self._topic, error)
        _LOG.warning("invoker_fetch_error", extra={"reason": str(error)})

    # ------------------------------------------------------------------ rebalances
    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        # What was paused when it was given up is so still: librdkafka keeps that apart.
        change = consumer.pause if self._paused else consumer.resume
        change(partitions)
        self._owned.update(each.partition for each in partitions)
        new = sorted(each.partition for each in partitions)
        _LOG.info("invoker_assigned", extra={"partitions": new})

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_up(consumer, sorted(each.partition for each in partitions))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lost = sorted(each.partition for each in partitions)
        self._owned.difference_update(lost)
        _LOG.warning("invoker_lost", extra={"partitions": lost})
        self._loop.call_soon_threadsafe(self._the_sink.lose, lost)

    def _give_up(self, consumer: Consumer, partitions: Sequence[int]) -> None:
        """Let the sink settle partitions, and commit what it says."""
        given_up = [partition for partition in partitions if partition in self._owned]
        if not given_up:
            return
        self._owned.difference_update(given_up)
        timeout_s = self._settings.session_timeout_ms / 2_000
        settling = asyncio.run_coroutine_threadsafe(self._settle(given_up, timeout_s), self._loop)
        try:
            offsets = settling.result(timeout_s + _LOOP_ANSWER_S)
            _LOG.info("invoker_revoked", extra={"partitions": given_up})
            if offsets:
                consumer.commit(offsets=self._positions(offsets), asynchronous=False)
        except (KafkaException, TimeoutError) as error:
            # Their next owner runs the same intents again: at least once, as promised.
            extra = {"partitions": given_up, "reason": repr(error)}
            _LOG.warning("invoker_commit_failed", extra=extra)

    async def _settle(self, partitions: Sequence[int], timeout_s: float) -> Mapping[int, int]:
        return await self._the_sink.settle(partitions, timeout_s)

    def _on_commit(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        refused = {
            each.partition: each.error or error
            for each in positions
            if error is not None or each.error is not None
        }
        if refused:
            self._commit_failed(sorted(refused), next(iter(refused.values())))
        self._delayed.difference_update(
            each.partition for each in positions if each.partition not in refused
        )

    def _commit_failed(self, partitions: Sequence[int], reason: KafkaError | None) -> None:
        """Have it tried again; said once, since a rebalance refuses all that are under way."""
        if not self._delayed.issuperset(partitions):
            self._delayed.update(partitions)
            extra = {"partitions": partitions, "reason": str(reason)}
            _LOG.info("invoker_commit_delayed", extra=extra)
        self._loop.call_soon_threadsafe(self._the_sink.commit_failed, partitions)

    # ------------------------------------------------------------------ both
    @property
    def _the_sink(self) -> IntentSink:
        assert self._sink is not None, "start names the sink"
        return self._sink

    def _positions(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, each, offset) for each, offset in offsets.items()]


def _broker_error(topic: str, error: KafkaError) -> BrokerError:
    remedy = None
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        remedy = "create it with `harn topology apply`"
    message = f"{topic}: invoker cannot read: {error.name()}: {error.str()}"
    return BrokerError(message, retryable=error.retriable(), remedy=remedy)
