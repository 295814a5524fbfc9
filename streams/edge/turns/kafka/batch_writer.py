"""A batch of an owner as a transaction: its outputs encoded, its offset with the bookmark.

Source: DESIGN law 6, "A turn".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from confluent_kafka import TopicPartition

from streams.agents.transaction import Overdue, TransactionalProducer
from streams.codec import Codec
from streams.core.record import Output, Position
from streams.core.turn.gathering import Batch
from streams.core.turn.words import CLAIMS, JOBS, SESSIONS, TURNS
from streams.edge.turns.kafka.partition_shelf import row_of
from streams.edge.turns.kafka.taking import LOOK_S
from streams.edge.turns.record_shelf import Gone, Shelved
from streams.edge.turns.turn_codec import CAUSE
from streams.engine import EncodedOutput
from streams.errors import BrokerError

__all__ = ["BatchWriter", "Written"]


class Written(NamedTuple):
    """What was committed: `records` of goals, tasks and sessions, as they are kept.

    `claims_end` is where the claims ended before, when it was asked for and answered.
    """

    records: list[Shelved | Gone]
    claims_end: int | None


class BatchWriter(NamedTuple):
    """What all partitions of a worker write with.

    `pool` runs what blocks; `group_metadata` names the group; `end_of` says where a topic's
    partition ends.  After `overdue_s` a write does not end any more: the client's call hangs.
    """

    codec: Codec
    pool: Executor
    group_metadata: bytes
    end_of: Callable[[str, int], int]
    overdue_s: float

    async def written(
        self, producer: TransactionalProducer, partition: int, batch: Batch, *, look: bool
    ) -> Written:
        """Commit a batch in the pool; see `write`.  Raises: Overdue, as well."""
        work = partial(self.write, producer, partition, batch, look=look)
        writing = asyncio.get_running_loop().run_in_executor(self.pool, work)
        limit_s = self.overdue_s + (LOOK_S if look else 0)
        try:
            return await asyncio.wait_for(writing, limit_s)
        except TimeoutError as error:
            message = f"a transaction of {TURNS}/{partition} did not end in {limit_s:g} s"
            raise Overdue(message, retryable=True) from error

    def write(
        self, producer: TransactionalProducer, partition: int, batch: Batch, *, look: bool
    ) -> Written:
        """Commit a batch; it blocks.

        Args:    look: whether to ask where the claims end, before.
        Raises:  BrokerError; EncodeError for what a body should not have returned.
        """
        end = None
        if look:
            with contextlib.suppress(BrokerError):  # the next owner loads some claims more
                end = self.end_of(CLAIMS, partition)
        place = TopicPartition(TURNS, partition, batch.offset, metadata=batch.metadata)
        records = [self._encoded(output, cause) for output, cause in batch.outputs]
        producer.commit_records(records, place, self.group_metadata)
        outputs = [output for output, _ in batch.outputs]
        kept = (_kept(*pair) for pair in zip(outputs, records, strict=True))
        return Written([each for each in kept if each is not None], end)

    def _encoded(self, output: Output, cause: Position) -> EncodedOutput:
        topic, kind, key, value, partition, extra = output
        return EncodedOutput(
            topic,
            partition,
            key.encode(),
            None if value is None else self.codec.encode(kind, value),
            [
                ("kind", kind.encode()),
                (CAUSE, str(cause).encode()),
                *((name, content.encode()) for name, content in extra),
            ],
        )


def _kept(output: Output, record: EncodedOutput) -> Shelved | Gone | None:
    """Return a goal, task or session as it is kept; None for what is not, or not for long.

    What runs is in memory, and is written again when it runs no more.
    """
    topic, kind, key, value, *_ = output
    if topic not in (JOBS, SESSIONS):
        return None
    if value is None or record.value is None:
        return Gone(key, 0, 0)
    is_running = value.get("status") == "running"
    return None if is_running else row_of(kind, key, value, record.value)
