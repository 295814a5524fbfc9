"""Partitions that the group gives to this worker: each is taken once its last owner is done.

Source: DESIGN "Taking a partition", "A turn".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from streams.agents.transaction import Overdue
from streams.core.turn.patience import Patience
from streams.edge.turns.kafka.taking import Taken, Taker
from streams.errors import BrokerError
from streams.observe import logs

__all__ = ["ArrivalSink", "Arrivals"]

_LOG = logs.logger(__name__)

_AGAIN_S = 0.5
_LOOK_S = 0.05
"""Between two looks whether the last owner is done."""
_OVERDUE_MAX = 4
"""Takings that may leave a hanging call behind: each has a thread, and a client with its own."""


class ArrivalSink(Protocol):
    """Asked and told on the event loop."""

    def is_wanted(self, partition: int) -> bool:
        """Whether the group still says that it is this worker's, which does not own it yet."""
        ...

    def is_leaving(self, partition: int) -> bool:
        """Whether this worker is still handing it over."""
        ...

    def own(self, number: int, taken: Taken) -> None:
        """It is this worker's now, and so loaded."""
        ...

    def fail(self, error: BaseException) -> None:
        """Something is broken."""
        ...


class Arrivals:
    """Takes partitions; made and used inside one event loop.

    Args: ask: calls what blocks, in a thread.
          silence_ms: after so long without a word an owner that hands over counts as dead.
    """

    def __init__(
        self,
        taker: Taker,
        sink: ArrivalSink,
        *,
        ask: Callable[..., Awaitable[Any]],
        silence_ms: int,
    ) -> None:
        self._taker = taker
        self._sink = sink
        self._ask = ask
        self._patience = Patience(silence_ms)
        self._loop = asyncio.get_running_loop()
        self._under_way: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fencing = 0
        self._overdue = 0
        self._fenced = asyncio.Event()
        self._fenced.set()

    def take(self, partitions: Sequence[int]) -> None:
        """Take partitions, each as soon as it may be, as long as they are wanted."""
        new = [each for each in partitions if each not in self._under_way]
        if not new:
            return
        self._under_way.update(new)
        task = self._loop.create_task(self._take(new))
        self._tasks.add(task)
        task.add_done_callback(self._took)

    async def settled(self) -> None:
        """Wait until none is being fenced: that must not come after the next owner's fence."""
        await self._fenced.wait()

    async def ended(self) -> None:
        """Wait until nothing is looked at any more, once nothing is wanted."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _took(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._sink.fail(error)

    async def _take(self, partitions: Sequence[int]) -> None:
        try:
            while wanted := [each for each in partitions if self._sink.is_wanted(each)]:
                try:
                    ready = await self._ready(wanted)
                    await self._fence(ready)
                except BrokerError as error:
                    self._overdue += isinstance(error, Overdue)
                    if not error.retryable or self._overdue > _OVERDUE_MAX:
                        raise
                    extra = {"partitions": wanted, "reason": str(error)}
                    _LOG.warning("turns_not_taken", extra=extra)
                    await asyncio.sleep(_AGAIN_S)
                    continue
                if len(ready) < len(wanted):
                    await asyncio.sleep(_LOOK_S)
        finally:
            self._under_way.difference_update(partitions)
            for each in partitions:
                self._patience.forget(each)

    async def _ready(self, wanted: Sequence[int]) -> list[int]:
        """Return those of which nobody is still ending turns."""
        found = await self._ask(self._taker.bookmarks, wanted)
        now_ms = time.monotonic_ns() // 1_000_000
        over = [each for each in wanted if self._patience.is_over(each, found[each], now_ms)]
        return [each for each in over if not self._sink.is_leaving(each)]

    async def _fence(self, ready: Sequence[int]) -> None:
        """Take partitions that are wanted still, once nothing else comes between."""
        wanted = [each for each in ready if self._sink.is_wanted(each)]
        if not wanted:
            return
        self._fencing += 1
        self._fenced.clear()
        try:
            taken: dict[int, Taken] = await self._ask(self._taker.take, wanted)
        finally:
            self._fencing -= 1
            if not self._fencing:
                self._fenced.set()
        for number, found in taken.items():
            if self._sink.is_wanted(number):
                self._sink.own(number, found)
