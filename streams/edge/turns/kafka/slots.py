"""The slots of a worker, shared by its partitions: which turn is begun next, and its way to an end.

The best turn of all partitions is begun as long as there is a slot; its body starts once its claim
is durable, and its slot is free when the body has returned, though the end is not durable yet.

Source: DESIGN "A turn", decision A33.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from streams.codec import Codec
from streams.core.turn.held import Held
from streams.core.turn.owner import Begun
from streams.edge.turns.body import Bodies
from streams.edge.turns.kafka.partition import OwnedPartition
from streams.edge.turns.kafka.running import Running

__all__ = ["SlotSink", "Slots"]

_INTERRUPTED_AGAIN_MS = 1_000
"""Before a turn is begun again that its body has given back by itself."""


_END_S = 1.0
"""For a body to end by itself when a later turn takes its place; then it is cancelled."""


class SlotSink(Protocol):
    """Told on the event loop."""

    def fill(self, partition: OwnedPartition) -> None:
        """Take what was read of a partition."""
        ...

    def doubt(self, partition: OwnedPartition) -> None:
        """Some of its turns are UNSURE."""
        ...

    def runs_changed(self) -> None:
        """Another turn runs, or one less."""
        ...

    def fail(self, error: BaseException) -> None:
        """Something is broken."""
        ...


class Slots:
    """Begins turns and runs their bodies; made and used inside one event loop."""

    def __init__(
        self,
        slots: int,
        partitions: Callable[[], Iterable[OwnedPartition]],
        bodies: Bodies,
        codec: Codec,
        now_ms: Callable[[], int],
        sink: SlotSink,
    ) -> None:
        self._free = slots
        self._partitions = partitions
        self._bodies = bodies
        self._codec = codec
        self._now_ms = now_ms
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def look_soon(self) -> None:
        """Look for turns to begin, once all that happens now has happened."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_due = False
        try:
            self._begin_best()
        except Exception as error:  # noqa: BLE001 - a broken rule ends the worker
            self._sink.fail(error)

    def _begin_best(self) -> None:
        now_ms = self._now_ms()
        partitions = list(self._partitions())
        for partition in partitions:
            self._sink.fill(partition)
            self._overrule(partition, now_ms)
        while self._free > 0:
            found: Held | None = None
            where: OwnedPartition | None = None
            for partition in partitions:
                held = partition.owner.best(now_ms)
                if held is not None and (found is None or held.rank < found.rank):
                    found, where = held, partition
            if found is None or where is None:
                break
            self._begin(where, found, now_ms)
        for partition in partitions:
            partition.wake()
        self._look_when_due(partitions, now_ms)

    def _overrule(self, partition: OwnedPartition, now_ms: int) -> None:
        """End what is not to run, or to run no more, since its session was busy."""
        owner = partition.owner
        for held in owner.overrule(now_ms):
            running = partition.runs.get(held.at.offset)
            if running is not None:  # another one has been begun, and its record is awaited
                running.overrule()
                self._loop.call_later(_END_S, running.cancel)
        while (held := owner.best_overruled()) is not None:
            if owner.end_overruled(held, now_ms) is Begun.UNSURE:
                partition.unsure[held.at.offset] = held
                self._sink.doubt(partition)

    def _begin(self, partition: OwnedPartition, held: Held, now_ms: int) -> None:
        match partition.owner.begin(held, now_ms):
            case Begun.RUN:
                running = Running(partition.owner, held, self._codec, partition.durable)
                partition.add_run(running)
                self._free -= 1

                def claimed(is_durable: bool) -> None:  # noqa: FBT001 - a waiter's one word
                    self._claimed(partition, running, is_durable=is_durable)

                partition.when_durable(claimed)
                self._sink.runs_changed()
            case Begun.UNSURE:
                partition.unsure[held.at.offset] = held
                self._sink.doubt(partition)
            case Begun.WAITS | Begun.DONE:
                pass

    def _claimed(self, partition: OwnedPartition, running: Running, *, is_durable: bool) -> None:
        if not is_durable or running.abandoned:
            self._free += 1
            partition.remove_run(running)
            return
        task = self._loop.create_task(self._run(partition, running))
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    async def _run(self, partition: OwnedPartition, running: Running) -> None:
        held, owner = running.held, partition.owner
        try:
            ending = await running.run(self._bodies)
        finally:
            self._free += 1
            partition.remove_run(running)
        if not running.abandoned and not partition.gone:
            now_ms = self._now_ms()
            # What is done is done, though it was told to end.
            is_done = ending is not None and ending.status == "completed"
            if ending is None and owner.is_overruled(held):
                owner.end(held, "cancelled", now_ms=now_ms)
            elif running.cancelled.is_set() and not is_done and not owner.is_overruled(held):
                owner.give_back(held, running.reason or "interrupted", now_ms)
            elif ending is None:
                again_ms = now_ms + _INTERRUPTED_AGAIN_MS
                owner.give_back(held, "interrupted", now_ms, not_before_ms=again_ms)
            else:
                owner.end(
                    held,
                    ending.status,
                    result=ending.result,
                    error=ending.error,
                    goal=ending.goal,
                    now_ms=now_ms,
                )
        self._sink.runs_changed()
        self.look_soon()

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._sink.fail(error)

    def _look_when_due(self, partitions: Iterable[OwnedPartition], now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [at_ms for each in partitions if (at_ms := each.owner.lanes.due_ms()) is not None]
        if due:
            self._timer = self._loop.call_later(max(0, min(due) - now_ms) / 1_000, self.look_soon)

    def stop(self) -> None:
        """Begin nothing more; what runs is ended by whoever stops the partitions."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
