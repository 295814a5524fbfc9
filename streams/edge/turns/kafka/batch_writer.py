"""A batch of an owner as a transaction: its outputs encoded, its offset with the bookmark.

Source: DESIGN law 6, "A turn".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from confluent_kafka import TopicPartition

from streams.agents.transaction import TransactionalProducer
from streams.codec import Codec
from streams.core.record import Output, Position
from streams.core.turn.gathering import Batch
from streams.core.turn.words import CLAIMS, TURNS
from streams.edge.turns.turn_codec import CAUSE
from streams.engine import EncodedOutput
from streams.errors import BrokerError

__all__ = ["BatchWriter"]


class BatchWriter(NamedTuple):
    """What all partitions of a worker write with.

    `pool` runs what blocks; `group_metadata` names the group; `end_of` says where a topic's
    partition ends.
    """

    codec: Codec
    pool: Executor
    group_metadata: bytes
    end_of: Callable[[str, int], int]

    def write(
        self, producer: TransactionalProducer, partition: int, batch: Batch, *, look: bool
    ) -> int | None:
        """Commit a batch; it blocks.

        Args:    look: whether to ask where the claims end, before.
        Returns: that, when it was asked for and answered.
        Raises:  BrokerError; EncodeError for what a body should not have returned.
        """
        end = None
        if look:
            with contextlib.suppress(BrokerError):  # the next owner loads some claims more
                end = self.end_of(CLAIMS, partition)
        place = TopicPartition(TURNS, partition, batch.offset, metadata=batch.metadata)
        records = [self._encoded(output, cause) for output, cause in batch.outputs]
        producer.commit_records(records, place, self.group_metadata)
        return end

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
