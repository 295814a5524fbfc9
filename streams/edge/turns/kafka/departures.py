"""Partitions that are handed over: each is given up as soon as its own turns have ended.

The group is not kept waiting for turns.  A partition in which none runs is given up at once; of any
other its owner says, in the metadata of the committed offset, that it yields, and how long it may
take.  Then the group may give it to the next owner, which waits for that (`Patience`).  Until the
last turn has ended the transactional producer writes on: a member of the group need not be there
for it.

Source: DESIGN "A turn"; `streams.core.turn.bookmark`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from streams.core.turn.bookmark import Bookmark
from streams.core.wire import TurnReleaseReason
from streams.edge.turns.kafka.partition import OwnedPartition
from streams.edge.turns.kafka.taking import Taker
from streams.errors import BrokerError
from streams.observe import logs

__all__ = ["END_S", "DepartureSink", "Departures"]

_LOG = logs.logger(__name__)

END_S = 1.0
"""For a body to end by itself once it is asked to, and again once it is cancelled."""

# In which a word that is committed can be read; after that its partition is let go all the same.
_SAID_S = 5.0
_LOOK_S = 0.01


class DepartureSink(Protocol):
    """Told on the event loop."""

    def read_no_more(self, partition: OwnedPartition) -> None:
        """Its turns are not to be read any more."""
        ...

    def forget(self, partition: OwnedPartition) -> None:
        """It is given up."""
        ...

    def fail(self, error: BaseException) -> None:
        """Something is broken."""
        ...


class _Departure:
    """A partition that is being given up."""

    def __init__(
        self, partition: OwnedPartition, reason: TurnReleaseReason, until_s: float
    ) -> None:
        self.partition = partition
        self.reason: TurnReleaseReason = reason
        self.until_s = until_s
        """When its bodies are asked to end, on the event loop's clock."""
        self.yields = asyncio.Event()
        """Whether its word is committed, if it needs any."""

    def is_said_by(self, bookmark: Bookmark | None) -> bool:
        """Whether a committed bookmark says that the partition yields."""
        if bookmark is None or bookmark.yields_ms is None:
            return False
        return bookmark.fence == self.partition.owner.holder.fence


class Departures:
    """Hands partitions over; made and used inside one event loop.

    Args: ask: calls what blocks, in a thread.  every_s: between two words of one that yields.
    """

    def __init__(
        self,
        taker: Taker,
        sink: DepartureSink,
        *,
        ask: Callable[..., Awaitable[Any]],
        now_ms: Callable[[], int],
        every_s: float,
    ) -> None:
        self._taker = taker
        self._sink = sink
        self._ask = ask
        self._now_ms = now_ms
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[OwnedPartition, _Departure] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(
        self, partitions: Iterable[OwnedPartition], reason: TurnReleaseReason, budget_s: float
    ) -> None:
        """Hand partitions over; return when other members may be given them.

        What still runs after `budget_s` is given back; a budget that was longer is shortened.
        """
        until_s = self._loop.time() + budget_s
        wanted = [self._departure(each, reason, until_s) for each in partitions]
        await asyncio.gather(*(each.yields.wait() for each in wanted))
        await self._heard_of(wanted)

    async def ended(self) -> None:
        """Wait until everything that was to be handed over is given up."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _departure(
        self, partition: OwnedPartition, reason: TurnReleaseReason, until_s: float
    ) -> _Departure:
        found = self._under_way.get(partition)
        if found is not None:
            found.until_s = min(found.until_s, until_s)
            return found
        made = self._under_way[partition] = _Departure(partition, reason, until_s)
        task = self._loop.create_task(self._hand_over(made))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._given_up(made, done))
        return made

    def _given_up(self, departure: _Departure, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        del self._under_way[departure.partition]
        departure.yields.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._sink.fail(error)

    def _goes_on(self, departure: _Departure) -> bool:
        return departure.partition in self._under_way and not departure.partition.gone

    async def _hand_over(self, departure: _Departure) -> None:
        """Begin nothing more; what runs may end; give back what still runs, and let go."""
        partition, reason = departure.partition, departure.reason
        partition.stop()
        self._sink.read_no_more(partition)
        if partition.runs:
            self._say(departure)
            await partition.durable()
            departure.yields.set()
            await self._let_end(departure)
        if partition.runs:
            partition.interrupt(reason)
            if not await partition.emptied(END_S):
                partition.cancel()
                await partition.emptied(END_S)
            partition.give_back_all(reason, self._now_ms())
        partition.owner.progress.yields_within(None)
        await partition.written()
        self._sink.forget(partition)

    async def _let_end(self, departure: _Departure) -> None:
        """Wait until nothing runs, or the budget is spent, and go on saying so."""
        while (left_s := departure.until_s - self._loop.time()) > 0:
            if await departure.partition.emptied(min(left_s, self._every_s)):
                return
            self._say(departure)
            departure.partition.wake()

    def _say(self, departure: _Departure) -> None:
        left_s = departure.until_s - self._loop.time() + 2 * END_S
        departure.partition.owner.progress.yields_within(max(0, round(left_s * 1_000)))

    async def _heard_of(self, departures: Iterable[_Departure]) -> None:
        """Wait until it can be read of partitions that they yield, unless they are given up.

        Markers of a transaction are written after its end was acknowledged.
        """
        until_s, reason = self._loop.time() + _SAID_S, "it cannot be read yet that they yield"
        while waited := {each.partition.number: each for each in departures if self._goes_on(each)}:
            try:
                found = await self._ask(self._taker.bookmarks, waited)
            except BrokerError as error:
                found, reason = {}, str(error)
            departures = [e for n, e in waited.items() if not e.is_said_by(found.get(n))]
            if self._loop.time() > until_s:
                extra = {"partitions": sorted(waited), "reason": reason}
                _LOG.warning("turns_handover_overdue", extra=extra)
                return
            await asyncio.sleep(_LOOK_S)
