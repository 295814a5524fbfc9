"""This worker's place in the group: which partitions are its own, on a thread of its own.

The group's consumer fetches nothing, its partitions stay paused: turns are read by another one.
So a partition that is handed over may hold up this thread, in the group's callback, for as long as
its turns need, while turns of the other partitions go on being read; heartbeats are librdkafka's
own.

Source: DESIGN "A turn", decision A33; TURN_HANDOVER_S of the settings.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.core.turn.words import TURNS
from streams.errors import BrokerError
from streams.kafka import make_consumer, right_missing
from streams.observe import logs
from streams.settings import Settings
from topology.edges import TURN_WORKER

__all__ = ["GROUP", "GroupSink", "Membership"]

GROUP = TURN_WORKER.group

_LOG = logs.logger(__name__)

_POLL_S = 0.1
# Also what other members wait for at most, when one of them does not answer any more.
_BEYOND_HANDOVER_S = 60
_POLL_INTERVAL_MS_MIN, _POLL_INTERVAL_MS_MAX = 300_000, 86_400_000


class GroupSink(Protocol):
    """What takes partitions and gives them up; every method is called on the event loop."""

    def assigned(self, partitions: Sequence[int]) -> None:
        """Take these, besides those that are there."""
        ...

    async def revoked(self, partitions: Sequence[int]) -> None:
        """Hand these over; return when nothing of them is under way any more."""
        ...

    def lost(self, partitions: Sequence[int]) -> None:
        """Forget these: other members may own them already."""
        ...

    def fail(self, error: BaseException) -> None:
        """Nothing more comes from the group."""
        ...


class Membership:
    """A member of the group; made and used inside one event loop."""

    def __init__(self, settings: Settings, sink: GroupSink) -> None:
        self._settings = settings
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._owned: set[int] = set()
        self._stopping = threading.Event()
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name="turns-group", daemon=True)

    def holds(self, partition: int) -> bool:
        """Whether the group says that a partition is this member's."""
        return partition in self._owned

    def start(self) -> None:
        """Join the group, soon."""
        # While turns end that are handed over, this thread does not poll.
        handover_ms = (self._settings.turn_handover_s + _BEYOND_HANDOVER_S) * 1_000
        interval_ms = min(max(handover_ms, _POLL_INTERVAL_MS_MIN), _POLL_INTERVAL_MS_MAX)
        self._consumer = make_consumer(
            self._settings,
            group_id=GROUP,
            partition_assignment_strategy="cooperative-sticky",
            max_poll_interval_ms=max(interval_ms, self._settings.session_timeout_ms),
        )
        self._consumer.subscribe(
            [TURNS], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._thread.start()

    async def stop(self) -> None:
        """Leave the group; what is still owned is handed over first."""
        self._stopping.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        consumer = self._consumer
        assert consumer is not None, "the thread starts after the consumer is made"
        try:
            while not self._stopping.is_set():
                found = consumer.poll(_POLL_S)
                error = None if found is None else found.error()
                if error is not None:
                    self._on_error(error)
            consumer.close()
        except BaseException as error:  # noqa: BLE001 - a thread's end must be heard of
            self._loop.call_soon_threadsafe(self._sink.fail, error)

    def _on_error(self, error: KafkaError) -> None:
        """Raise what no waiting mends; librdkafka goes on trying after anything else."""
        refused = right_missing(error) is not None
        if error.fatal() or refused:
            raise _broker_error(error)
        _LOG.warning("turns_group_error", extra={"reason": str(error)})

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        new = sorted(each.partition for each in partitions)
        self._owned.update(new)
        if new:
            _LOG.info("turns_assigned", extra={"partitions": new})
            self._loop.call_soon_threadsafe(self._sink.assigned, new)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = sorted(each.partition for each in partitions)
        self._owned.difference_update(gone)
        handing = asyncio.run_coroutine_threadsafe(self._revoked(gone), self._loop)
        try:
            handing.result(self._settings.turn_handover_s + _BEYOND_HANDOVER_S)
        except TimeoutError:
            # What it still writes is refused once the next owner has fenced it.
            _LOG.warning("turns_handover_overdue", extra={"partitions": gone})
        else:
            _LOG.info("turns_revoked", extra={"partitions": gone})

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = sorted(each.partition for each in partitions)
        self._owned.difference_update(gone)
        _LOG.warning("turns_lost", extra={"partitions": gone})
        self._loop.call_soon_threadsafe(self._sink.lost, gone)

    async def _revoked(self, partitions: Sequence[int]) -> None:
        await self._sink.revoked(partitions)


def _broker_error(error: KafkaError | KafkaException) -> BrokerError:
    reason: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    message = f"group {GROUP} cannot be joined: {reason.name()}: {reason.str()}"
    return BrokerError(message, retryable=reason.retriable(), remedy=right_missing(reason))
