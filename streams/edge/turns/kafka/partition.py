"""A partition of turns that this worker owns: its transactions, one after another, and what runs.

What gathers while one transaction is under way goes into the next one.  None is open while a body
runs.  A failure makes the partition `gone`: nothing of it is written any more, and whoever wanted
something to be durable is told that it is not.

Source: DESIGN "A turn", law 6; ADR 20.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from streams.agents.transaction import TransactionalProducer
from streams.core.record import Position
from streams.core.turn.envelope import EnvelopeError
from streams.core.turn.held import Held
from streams.core.turn.owner import Owner
from streams.core.turn.words import JOBS, SESSIONS, TURNS
from streams.core.wire import TurnOutcome, TurnReleaseReason
from streams.edge.turns.kafka.batch_writer import BatchWriter
from streams.edge.turns.kafka.feed import Fetched, Place
from streams.edge.turns.kafka.partition_shelf import PartitionShelf
from streams.edge.turns.kafka.running import Running
from streams.edge.turns.turn_codec import decode_turn
from streams.observe import logs

__all__ = ["OwnedPartition", "PartitionSink"]

_LOG = logs.logger(__name__)

# Fetched records that wait to be taken: enough to go on with while reading begins anew.
_WAITING_MAX, _WAITING_FEW = 1_000, 250
_WAITING_BYTES_MAX = 4_000_000
# Words after which it is looked where the claims end: what a next owner loads needlessly.
_SAID_MAX = 1_000

Waiter = Callable[[bool], None]
"""Told whether what was given to the owner is durable."""


class PartitionSink(Protocol):
    """Told on the event loop."""

    def ended(self, outcomes: Sequence[TurnOutcome]) -> None:
        """The ends of these turns are durable."""
        ...

    def broke(self, partition: OwnedPartition, error: BaseException) -> None:
        """A transaction failed: the partition is to be given up."""
        ...

    def changed(self) -> None:
        """There may be something to begin."""
        ...


class OwnedPartition:
    """A partition, as long as it is owned; made and used on the event loop.

    `ticket` is that of its assignment, `unsure` and `runs` are turns by offset.
    """

    def __init__(
        self,
        owner: Owner,
        producer: TransactionalProducer,
        writer: BatchWriter,
        sink: PartitionSink,
        *,
        shelf: PartitionShelf,
        ticket: int,
    ) -> None:
        self.owner = owner
        self.shelf = shelf
        self.number = owner.partition
        self.ticket = ticket
        self.gone = False
        self.paused = False
        self.unsure: dict[int, Held] = {}
        self.runs: dict[int, Running] = {}
        self._read_to: dict[str, int] = {}
        self._producer = producer
        self._writer = writer
        self._sink = sink
        self._waiting: deque[Fetched] = deque()
        self._waiting_bytes = 0
        self._waiters: list[Waiter] = []
        self._reached: list[tuple[str, int, asyncio.Future[None]]] = []
        self._due = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._committing = asyncio.ensure_future(self._commit_until_gone())

    @property
    def places(self) -> tuple[Place, ...]:
        """What is read of it besides its turns."""
        return ((JOBS, self.number), (SESSIONS, self.number))

    # ------------------------------------------------------------------ reading
    def fetched(self, record: Fetched) -> None:
        """Keep the next record of the turns until it may be taken."""
        self._waiting.append(record)
        self._waiting_bytes += len(record.value or b"")

    @property
    def wants_pause(self) -> bool:
        """Whether reading is to be paused, or stay so."""
        if self._waiting_bytes >= _WAITING_BYTES_MAX:
            return True
        return len(self._waiting) >= (_WAITING_FEW if self.paused else _WAITING_MAX)

    def absorb(self) -> None:
        """Take what was read, as far as there is room."""
        owner, waiting = self.owner, self._waiting
        while waiting and owner.wants_more:
            record = waiting.popleft()
            self._waiting_bytes -= len(record.value or b"")
            at = Position(TURNS, self.number, record.offset)
            try:
                envelope = decode_turn(self._writer.codec, record.value, at, record.timestamp_ms)
            except EnvelopeError as error:
                extra = {"position": str(at), "reason": str(error)}
                _LOG.warning("turn_dead_lettered", extra=extra)
                owner.bury(
                    error,
                    at,
                    key=record.key,
                    raw=record.value,
                    timestamp_ms=record.timestamp_ms,
                )
            else:
                owner.take(envelope, at, arrived_ms=record.timestamp_ms)

    def followed(self, topic: str, next_offset: int) -> None:
        """Note that the API's records before this offset are folded."""
        self._read_to[topic] = max(next_offset, self._read_to.get(topic, 0))
        still = [each for each in self._reached if not self._met(each)]
        self._reached = still

    def _met(self, each: tuple[str, int, asyncio.Future[None]]) -> bool:
        topic, offset, future = each
        if self._read_to.get(topic, 0) < offset and not self.gone:
            return False
        if not future.done():
            future.set_result(None)
        return True

    async def read_up_to(self, topic: str, offset: int) -> None:
        """Wait until the API's records before this offset are folded, or it is gone."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (topic, offset, future)
        if not self._met(entry):
            self._reached.append(entry)
            await future

    # ------------------------------------------------------------------ what runs
    def add_run(self, running: Running) -> None:
        """Note that a turn is about to run."""
        self.runs[running.held.at.offset] = running
        self._empty.clear()

    def remove_run(self, running: Running) -> None:
        """Note that a turn runs no more."""
        if self.runs.get(running.held.at.offset) is running:
            del self.runs[running.held.at.offset]
            if not self.runs:
                self._empty.set()

    async def emptied(self, within_s: float) -> bool:
        """Wait until nothing runs; return whether it was in time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), within_s)
        return not self.runs

    def stop(self) -> None:
        """Begin nothing more."""
        self.owner.lanes.stop()
        for held in self.unsure.values():
            self.owner.put_back(held)
        self.unsure.clear()
        self._waiting.clear()
        self._waiting_bytes = 0

    def interrupt(self, reason: TurnReleaseReason) -> None:
        """Ask the bodies to end at once: their turns are given back."""
        for running in list(self.runs.values()):
            running.interrupt(reason)

    def cancel(self) -> None:
        """End the bodies that were asked to."""
        for running in list(self.runs.values()):
            running.cancel()

    def give_back_all(self, reason: TurnReleaseReason, now_ms: int) -> None:
        """Give back what runs, though its bodies go on."""
        for running in list(self.runs.values()):
            running.abandoned = True
            running.cancelled.set()
            self.remove_run(running)
            if not self.gone:
                self.owner.give_back(running.held, reason, now_ms)

    # ------------------------------------------------------------------ writing
    def when_durable(self, waiter: Waiter) -> None:
        """Call `waiter` once all that the owner was given is durable, or never will be."""
        self._waiters.append(waiter)
        self.wake()

    async def durable(self) -> bool:
        """Return whether all that the owner was given has become durable."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def told(is_durable: bool) -> None:  # noqa: FBT001 - a waiter's one word
            if not future.done():
                future.set_result(is_durable)

        if self.gone:
            return False
        self.when_durable(told)
        return await future

    def wake(self) -> None:
        """Commit what has gathered, if anything has."""
        if not self.gone and (self._waiters or self.owner.is_due):
            self._idle.clear()
            self._due.set()

    async def written(self) -> None:
        """Wait until everything is committed, or it is gone."""
        self.wake()
        await self._idle.wait()

    def close(self) -> None:
        """Write nothing more."""
        self.gone = True
        self.shelf.close()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter(False)  # noqa: FBT003 - a waiter's one word
        self._reached = [each for each in self._reached if not self._met(each)]
        for running in list(self.runs.values()):
            running.abandoned = True
            running.cancelled.set()
            self.remove_run(running)
        self.unsure.clear()
        self._waiting.clear()
        self._due.set()
        self._idle.set()

    async def _commit_until_gone(self) -> None:
        while not self.gone:
            if not self._waiters and not self.owner.is_due:
                self._idle.set()
                self._due.clear()
                await self._due.wait()
                continue
            batch, waiters = self.owner.batch(), self._waiters
            self._waiters = []
            look = self.owner.said_since >= _SAID_MAX
            try:
                written = await self._writer.written(self._producer, self.number, batch, look=look)
            except Exception as error:  # noqa: BLE001 - an owner that cannot write is none
                self._waiters = [*waiters, *self._waiters]
                if not self.gone:
                    self._sink.broke(self, error)
                self.close()
                return
            if written.claims_end is not None:
                self.owner.claims_end_at(written.claims_end)
            self.shelf.note(written.records)
            self._sink.ended(batch.outcomes)
            for waiter in waiters:
                waiter(not self.gone)
            self._sink.changed()
