"""The one place that makes transactions: all that a batch writes, together or not at all.

One transactional producer per owned partition.  Taking a partition fences whoever had it:
`init_transactions` ends the previous owner's open transaction and makes its later words fail.

Source: DESIGN law 6, "Transactions"; FINDINGS 1-4, 14.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from streams.aside import within
from streams.engine import POSITION_KEY, EncodedOutput, Step
from streams.errors import BrokerError
from streams.kafka import make_producer
from streams.settings import Settings

Faults = Callable[[str], None]
"""Called at named points inside a transaction: chaos tests end the process there."""

BEFORE_OFFSETS = "before_offsets"
AFTER_OFFSETS = "after_offsets"
AFTER_COMMIT = "after_commit"

OVERDUE_FACTOR = 1.5
"""A commit that takes this many transaction timeouts will not end: the client's call hangs, as
`send_offsets_to_transaction` does when the group's coordinator was lost in the middle of it
(librdkafka issue 5456)."""

_STRAY_CALLS = 2
"""Calls of which each may take a transaction's longest time, where stray offsets are let go of."""
_METADATA_TIMEOUT_S = 10.0
_INIT_TIMEOUT_S = 30.0
_FLUSH_TIMEOUT_S = 10.0
_QUEUE_RECORDS = 200_000
"""Records that may wait in the client; more than any batch writes, or it waits for the broker."""
_FULL_QUEUE_FLUSH_S = 0.01
_LINGER_MS = 100
"""The end of a transaction sends at once what waits.  Until then records gather: with a shorter
time, one transaction of a busy process sends each partition several requests."""
_BY_KEY = -1
"""librdkafka's word for a partition that the key decides."""


def no_faults(_point: str, /) -> None:
    """Let every point pass."""


class Target(NamedTuple):
    """Where a partition's transaction writes besides its outputs."""

    source: str
    partition: int
    changelog: str
    journal: str
    journal_partition: int
    journal_key: bytes


class Fenced(BrokerError):  # noqa: N818 - a state of an owner, as `StageHalted` is of a stage
    """Another owner has the partition: nothing that this one writes counts any more."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class Overdue(BrokerError):  # noqa: N818 - a state of a transaction
    """A transaction is not over and will not be: its client's thread is lost to a call that hangs.

    Who counts them can say when enough is lost.
    """


class TransactionalProducer:
    """Writes whole transactions under one transactional id.  It blocks: call it in a thread."""

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        faults: Faults = no_faults,
        *,
        queue_records: int = _QUEUE_RECORDS,
    ) -> None:
        self._id = transactional_id
        self._faults = faults
        # The broker ends a transaction that takes longer: waiting on would gain nothing.
        self._timeout_s = settings.transaction_timeout_ms / 1000
        self._producer: Producer = make_producer(
            settings,
            transactional_id=transactional_id,
            linger_ms=_LINGER_MS,
            batch_size=1_000_000,
            queue_buffering_max_messages=queue_records,
            queue_buffering_max_kbytes=131_072,
        )
        self._produce: Callable[..., None] = self._producer.produce

    def fence(self) -> None:
        """End whatever a previous owner of the partition left open; its later commits fail.

        Raises: BrokerError when the coordinator does not answer.
        """
        try:
            # With all topics known and the connection up first, initialising takes some 30 ms;
            # it waits for a 500 ms timer otherwise.
            self._producer.list_topics(timeout=_METADATA_TIMEOUT_S)
            self._producer.init_transactions(_INIT_TIMEOUT_S)
        except KafkaException as error:
            message = f"transactional id {self._id} could not be initialised: {error}"
            raise BrokerError(message, retryable=True) from error

    def end_stray_offsets_at(self, topic: str, partition: int, group_metadata: bytes) -> None:
        """Let go of offsets that arrived after the end of the transaction that they were of.

        Call it after `fence`.  A broker that does not verify transactions keeps such offsets as
        pending for ever, and answers nobody where the partition stands (ADR 20).  The end of any
        later transaction of the same id settles them: this one ends without having said anything.

        Raises: Overdue when the client does not come back, BrokerError; what is open then is ended
                by the next fence.
        """
        ending = partial(self._end_stray_offsets, TopicPartition(topic, partition, 0))
        limit_s = _STRAY_CALLS * self._timeout_s * OVERDUE_FACTOR
        failed = f"stray offsets of {self._id} at {topic}/{partition} could not be ended"
        try:
            within(limit_s, partial(ending, group_metadata), name=f"stray offsets of {self._id}")
        except TimeoutError as error:
            message = f"{failed}: the client does not come back after {limit_s:g} s"
            raise Overdue(message, retryable=True) from error
        except KafkaException as error:
            raise BrokerError(f"{failed}: {error}", retryable=True) from error

    def _end_stray_offsets(self, offset: TopicPartition, group_metadata: bytes) -> None:
        producer = self._producer
        producer.begin_transaction()
        producer.send_offsets_to_transaction([offset], group_metadata, self._timeout_s)
        # All that was asked is answered, so that nothing of it can come late in its turn.
        producer.abort_transaction(self._timeout_s)

    def commit_records(
        self, records: Iterable[EncodedOutput], place: TopicPartition, group_metadata: bytes
    ) -> None:
        """Write records, and the offset of `place` with its metadata, as one transaction.

        Raises: Fenced, BrokerError; the outcome may be unknown, and whoever called must forget the
                partition's memory and this producer.  The next owner ends what is open: by its
                greater epoch, so that nothing still on its way to the broker counts after that.
        """
        at = f"{place.topic}/{place.partition}/{place.offset}"
        self._transact(f"up to {at}", partial(self._append_all, records), place, group_metadata)

    def commit_alone(self, name: str, records: Iterable[EncodedOutput]) -> None:
        """Write records as one transaction that moves no offset; `name` is for its error.

        Raises: as `commit_records`.
        """
        self._transact(name, partial(self._append_all, records), None, b"")

    def _append_all(self, records: Iterable[EncodedOutput]) -> None:
        for topic, partition, key, value, headers in records:
            self._append(topic, value, key, _BY_KEY if partition is None else partition, headers)

    def _transact(
        self,
        name: str,
        fill: Callable[[], None],
        place: TopicPartition | None,
        group_metadata: bytes,
    ) -> None:
        producer = self._producer
        try:
            producer.begin_transaction()
            fill()
            self._fault_point(BEFORE_OFFSETS)
            if place is not None:
                producer.send_offsets_to_transaction([place], group_metadata, self._timeout_s)
            self._fault_point(AFTER_OFFSETS)
            producer.commit_transaction(self._timeout_s)
            self._fault_point(AFTER_COMMIT)
        except (KafkaException, BufferError) as error:
            message = f"transaction {name} of {self._id} failed: {error}"
            if _is_fenced(error):
                raise Fenced(message) from error
            raise BrokerError(message, retryable=True) from error

    def _fault_point(self, point: str) -> None:
        """Let a chaos test act here, with everything so far written to the broker."""
        if self._faults is not no_faults:
            self._producer.flush(_FLUSH_TIMEOUT_S)
            self._faults(point)

    def _append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes,
        partition: int,
        headers: Any = None,  # the client's type for them is an invariant list of a wider pair
    ) -> None:
        try:
            # By position: a quarter of the call's time goes into keywords otherwise.
            self._produce(topic, value, key, partition, None, None, 0, headers)
        except BufferError:
            self._append_when_there_is_room(topic, value, key, partition, headers)

    def _append_when_there_is_room(self, *record: Any) -> None:
        """The local queue is full: wait for the broker, as long as the transaction may last."""
        deadline = time.monotonic() + self._timeout_s
        *place, headers = record
        while True:
            self._producer.flush(_FULL_QUEUE_FLUSH_S)  # a poll would wait for what gathers
            try:
                self._produce(*place, None, None, 0, headers)
            except BufferError:
                if time.monotonic() > deadline:
                    raise
            else:
                return


class PartitionProducer(TransactionalProducer):
    """The transactional producer of one owned partition of a stage.  It blocks as well."""

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        target: Target,
        faults: Faults,
        *,
        queue_records: int = _QUEUE_RECORDS,
    ) -> None:
        super().__init__(settings, transactional_id, faults, queue_records=queue_records)
        self._target = target

    def end_stray_offsets(self, group_metadata: bytes) -> None:
        """Let go of stray offsets of the stage's source; see `end_stray_offsets_at`."""
        target = self._target
        self.end_stray_offsets_at(target.source, target.partition, group_metadata)

    def commit(self, step: Step, offset_metadata: str, group_metadata: bytes) -> None:
        """Write one step as one transaction; see `commit_records`."""
        target, next_offset = self._target, step.position.next_offset
        place = TopicPartition(
            target.source, target.partition, next_offset, metadata=offset_metadata
        )
        fill = partial(self._fill, step)
        self._transact(str(step.position.seq), fill, place, group_metadata)

    def _fill(self, step: Step) -> None:
        """Append everything, and early on something to each partition.

        What a millisecond touches, the client announces to the coordinator in one request.
        """
        target, append = self._target, self._append
        append(target.journal, step.journal, target.journal_key, target.journal_partition, _JOURNAL)
        rows = iter(step.rows)
        for key, value in islice(rows, 1):
            append(target.changelog, value, key, target.partition)
        for topic, partition, key, value, headers in step.outputs:
            append(topic, value, key, _BY_KEY if partition is None else partition, headers)
        for key, value in rows:
            append(target.changelog, value, key, target.partition)
        # Last of the changelog: whoever loads it may cut there.
        place, headers = target.partition, step.position_headers
        append(target.changelog, step.position_row, POSITION_KEY, place, headers)


def _is_fenced(error: KafkaException | BufferError) -> bool:
    reason = error.args[0] if error.args else None
    return isinstance(reason, KafkaError) and reason.code() in _FENCED


_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)
_JOURNAL = [("kind", b"journal_entry")]
