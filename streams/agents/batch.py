"""A fetched record list as one Faust event: the unit that a stage's agent iterates over.

Faust's own path makes one message, one event and one queue entry per record, and tops out at some
ten thousand records a second.  Here one event carries all records that one fetch brought for one
partition; queue sizes are still counted in records, so that Faust's own back-pressure pauses and
resumes the right partitions.

Source: DESIGN "The stage runtime", "Delivery"; FINDINGS 10.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import faust
from faust.types import TP
from mode.utils.queues import ThrowableQueue

from streams.agents.owned import Owned
from streams.settings import Settings

_RECORD_BYTES = 1_024  # a larger record counts as several


class Batch:
    """Records of one partition, in offset order, fetched under one group generation.

    `seek` is the number of the seek that they were fetched after, `follows` the offset at which
    all that was handed on under it before has ended, `weight` what they count as in a queue: large
    records fill it sooner.
    """

    __slots__ = ("follows", "generation", "owned", "records", "seek", "tp", "weight")

    def __init__(
        self, tp: TP, generation: int, records: list[Any], seek: int, follows: int = 0
    ) -> None:
        self.tp = tp
        self.generation = generation
        self.records = records
        self.seek = seek
        self.follows = follows
        self.weight = _weight(records)
        self.owned: Owned | None = None

    @property
    def next_offset(self) -> int:
        """Where the records end."""
        return self.records[-1].offset + 1

    def split(self, count: int) -> Batch:
        """Take out the first `count` records, fewer than there are, as a batch of their own."""
        first = Batch(self.tp, self.generation, self.records[:count], self.seek, self.follows)
        self.records = self.records[count:]
        self.follows = first.next_offset
        self.weight -= first.weight
        return first


def _weight(records: list[Any]) -> int:
    """Count records, one of several kilobytes as several."""
    return len(records) + sum(len(record.value or b"") for record in records) // _RECORD_BYTES


class BatchQueue(ThrowableQueue):
    """Holds batches, measured by their weight.

    `get` merges what waits, up to `records_max`, and splits what is longer: what arrives during a
    commit is the next batch.

    Faust clears its queues at a rebalance, and once more when flow goes on after it.  By then
    partitions have been sought, and what waits may be what they go on with: only what is cleared
    while flow stands still is dropped.  What is older than the seek is not begun (`LiveStage`).
    """

    records_max = 1_000
    _queue: deque[Any]
    _held = 0

    def qsize(self) -> int:
        """What waits, in records of ordinary size."""
        return self._held

    def full(self) -> bool:
        """Never: a partition is bounded by pausing it, blocking here would stop all the others."""
        return False

    def clear(self) -> None:
        """Drop everything that waits, unless flow goes on."""
        if not self._flow_control.is_active():
            super().clear()
            self._held = 0

    def _put(self, item: Any) -> None:
        self._held += item.value.weight
        self._queue.append(item)

    def _get(self) -> Any:
        waiting, want = self._queue, self.records_max
        event = waiting[0]
        batch: Batch = event.value
        if len(batch.records) > want:
            taken = batch.split(want)
            self._held -= taken.weight
            return type(event)(event.app, event.key, taken, event.headers, event.message)
        waiting.popleft()
        self._held -= batch.weight
        while waiting:
            following: Batch = waiting[0].value
            one = (batch.generation, batch.seek, batch.next_offset)
            follows = (following.generation, following.seek, following.follows) == one
            if not follows or len(batch.records) + len(following.records) > want:
                break
            waiting.popleft()
            self._held -= following.weight
            batch.records = batch.records + following.records
        return event


class BatchTopic(faust.Topic):
    """A topic whose events carry a `Batch`.

    It is declared with `acks=False`: Faust tracks no message of it and commits nothing.
    """

    stage_settings: Settings | None = None

    def _clone(self, **kwargs: Any) -> Any:
        clone: Any = super()._clone(**kwargs)
        clone.stage_settings = self.stage_settings
        return clone

    @property
    def queue(self) -> Any:
        """The queue of one partition's agent."""
        if self._queue is None:
            settings = self.stage_settings
            assert settings is not None, "a batch topic belongs to a live stage"
            self._queue = BatchQueue(
                maxsize=settings.buffer_records,
                flow_control=self.app.flow_control,
                clear_on_resume=True,
            )
            self._queue.records_max = settings.max_batch_records
        return self._queue

    async def decode(self, message: Any, *, propagate: bool = False) -> Any:  # noqa: ARG002 - Faust's signature
        """Wrap the batch as it is: the engine decodes, and bad bytes become outputs there."""
        return self._create_event(None, message.value, {}, message)

    def on_stop_iteration(self) -> None:
        """Leave quietly; the stock code flags a resubscription 45 s later."""
        conductor: Any = self.app.topics
        conductor._topics.discard(self)


class StageAgent(faust.Agent):
    """An agent that leaves its loop on a rebalance instead of being cancelled inside a commit."""

    _LEAVE_TIMEOUT_S = 10.0

    async def on_isolated_partitions_revoked(self, revoked: set[TP]) -> None:
        """End the body of each revoked partition, and wait until it has left."""
        for tp in revoked:
            actor = self._actor_by_partition.pop(tp, None)
            if actor is None:
                continue
            actor.cancel()
            task: Any = actor.actor_task
            await asyncio.wait([task], timeout=self._LEAVE_TIMEOUT_S)
            await actor.stop()
            if self.supervisor:
                self.supervisor.discard(actor)
            self._actors.discard(actor)
