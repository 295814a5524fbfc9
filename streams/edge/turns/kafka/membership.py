"""This worker's place in the group: which partitions are its own, on a thread of its own.

The group's consumer fetches nothing, its partitions stay paused: turns are read by another one.
The group is held up while this thread is in its callback, which is until partitions may be given to
other members: for one transaction, not for turns.  Heartbeats are librdkafka's own.

Source: DESIGN "A turn", decision A33.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.core.turn.words import TURNS
from streams.edge.turns.kafka.group_protocol import CLASSIC, CONSUMER, Choice, refused
from streams.errors import BrokerError
from streams.kafka import make_consumer, right_missing
from streams.observe import logs
from streams.settings import Settings
from topology.edges import TURN_WORKER

__all__ = ["GROUP", "GroupSink", "Membership"]

GROUP = TURN_WORKER.group

_LOG = logs.logger(__name__)

_POLL_S = 0.1
# What other members wait for at most, when this thread does not answer any more.
_POLL_INTERVAL_MS_MIN = 60_000
_BEYOND_TRANSACTIONS_S = 10.0
_SPEAKS: Mapping[str, Mapping[str, str]] = {
    CLASSIC: {"partition_assignment_strategy": "cooperative-sticky"},
    CONSUMER: {"group_protocol": CONSUMER},
}


class GroupSink(Protocol):
    """What takes partitions and gives them up; every method is called on the event loop."""

    def assigned(self, partitions: Sequence[int]) -> None:
        """Take these, besides those that are there."""
        ...

    async def revoked(self, partitions: Sequence[int]) -> None:
        """Hand these over; return when other members may be given them."""
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
        # A transaction that is under way, the one that says what is handed over, and reading it.
        transaction_s = settings.transaction_timeout_ms / 1_000
        self._revoking_s = 2 * transaction_s + _BEYOND_TRANSACTIONS_S
        self._stopping = threading.Event()
        self._consumer: Consumer | None = None
        self._choice = Choice(CLASSIC, "")
        self._was_heard = False
        """Whether the group has given this member anything yet."""
        self._thread = threading.Thread(target=self._run, name="turns-group", daemon=True)

    def start(self, choice: Choice) -> None:
        """Join the group, soon."""
        self._join(choice)
        self._thread.start()

    async def stop(self) -> None:
        """Leave the group; what is still owned is handed over first."""
        self._stopping.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _join(self, choice: Choice) -> None:
        extra = {"protocol": choice.protocol, "reason": choice.reason}
        _LOG.info("turns_group_protocol", extra=extra)
        self._choice = choice
        speaks = _SPEAKS[choice.protocol]
        # While others must not be given partitions yet, this thread does not poll.
        interval_ms = max(_POLL_INTERVAL_MS_MIN, round(2_000 * self._revoking_s))
        interval_ms = max(interval_ms, self._settings.session_timeout_ms)
        self._consumer = make_consumer(
            self._settings, group_id=GROUP, max_poll_interval_ms=interval_ms, **speaks
        )
        self._consumer.subscribe(
            [TURNS], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                found = self._joined.poll(_POLL_S)
                error = None if found is None else found.error()
                if error is not None:
                    self._on_error(error)
            self._joined.close()
        except BaseException as error:  # noqa: BLE001 - a thread's end must be heard of
            self._loop.call_soon_threadsafe(self._sink.fail, error)

    @property
    def _joined(self) -> Consumer:
        assert self._consumer is not None, "the thread starts after the consumer is made"
        return self._consumer

    def _on_error(self, error: KafkaError) -> None:
        """Raise what no waiting mends; librdkafka goes on trying after anything else."""
        # What it puts into its queue as fatal has that code, and not the flag.
        is_fatal = error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001 - its name
        if is_fatal and self._choice.protocol == CONSUMER and not self._was_heard:
            self._on_refused(error)
        elif is_fatal or right_missing(error) is not None:
            raise _broker_error(error)
        else:
            _LOG.warning("turns_group_error", extra={"reason": str(error)})

    def _on_refused(self, error: KafkaError) -> None:
        """Speak classic: the group has members that this one cannot join, or the broker cannot."""
        if not self._choice.may_change:
            raise refused(GROUP, error.str())
        self._joined.close()
        self._join(Choice(CLASSIC, error.str()))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._was_heard = True
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        new = sorted(each.partition for each in partitions)
        if new:
            _LOG.info("turns_assigned", extra={"partitions": new})
            self._loop.call_soon_threadsafe(self._sink.assigned, new)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = sorted(each.partition for each in partitions)
        handing = asyncio.run_coroutine_threadsafe(self._revoked(gone), self._loop)
        try:
            handing.result(self._revoking_s)
        except TimeoutError:
            # What it still writes is refused once the next owner has fenced it.
            extra = {"partitions": gone, "reason": "a transaction has not ended"}
            _LOG.warning("turns_handover_overdue", extra=extra)
        else:
            _LOG.info("turns_revoked", extra={"partitions": gone})

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = sorted(each.partition for each in partitions)
        _LOG.warning("turns_lost", extra={"partitions": gone})
        self._loop.call_soon_threadsafe(self._sink.lost, gone)

    async def _revoked(self, partitions: Sequence[int]) -> None:
        await self._sink.revoked(partitions)


def _broker_error(error: KafkaError | KafkaException) -> BrokerError:
    reason: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    message = f"group {GROUP} cannot be joined: {reason.name()}: {reason.str()}"
    return BrokerError(message, retryable=reason.retriable(), remedy=right_missing(reason))
