"""All goals, tasks and sessions of a partition that its worker owns: on disk, findable by key.

The owner's memory holds what is new, and what open turns need.  The rest is read in the background
once the partition was taken, and its turns run meanwhile; whoever asks for what memory has no more
waits until that is done.  Of what has ended the key is kept, and not the record.

    taken ── all that was there before is read, topic by topic ──▸ built
      └───── what is written or learned since gathers, and is put there in batches

Source: DESIGN law 9, "A turn"; ADR 25.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from streams.codec import Codec, DecodeError
from streams.core.turn.claim import ENDED
from streams.core.turn.parting import Due
from streams.edge.topic_reader import ReadRecord
from streams.edge.turns.kafka.feed import Place
from streams.edge.turns.kafka.shelf_builder import ShelfBuilder
from streams.edge.turns.record_shelf import Gone, RecordShelf, Shelved
from streams.errors import TaskQueueUnavailable

__all__ = ["PartitionShelf", "row_of"]

_GATHERED_MAX = 2_000
_CACHE_BYTES = 4 * 2**20
_MOMENTS = ("updated_at_ms", "requested_at_ms")

_Found = TypeVar("_Found")

Ask = Callable[..., Awaitable[Any]]
"""Calls what blocks, in a thread."""


def row_of(
    kind: str, key: str, found: Mapping[str, Any], value: bytes, *, offset: int = 0
) -> Shelved:
    """Return a record as it is kept; of what has ended without its value."""
    status = found.get("status", "")
    changed_at_ms = max(found.get(name, 0) for name in _MOMENTS)
    is_over = status in ENDED and kind in ("agent_goal", "agent_job")
    kept = b"" if is_over else value
    return Shelved(kind, key, found["session_id"], status, changed_at_ms, 0, offset, kept)


class PartitionShelf:
    """Of one partition, while it is owned; made and used on the event loop.

    Args:   ends: where reading the topics ends: what comes after is told by `note`.
            ask: runs what blocks for a moment.
            fail: told why it cannot be kept.
    Raises: TaskQueueUnavailable: there is no disk for it.
    """

    def __init__(
        self,
        codec: Codec,
        ends: Mapping[Place, int],
        builder: ShelfBuilder,
        *,
        ask: Ask,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._codec = codec
        self._ask = ask
        self._fail = fail
        self._shelf = RecordShelf(cache_bytes=_CACHE_BYTES)
        self._closed = threading.Event()
        self._gathered: list[Shelved | Gone] = []
        self._next = max(ends.values(), default=0)  # what comes later counts more
        self._lock = asyncio.Lock()
        self._putting: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._built: dict[str, asyncio.Future[None]] = {}
        self._building: list[asyncio.Task[None]] = []
        for (topic, partition), end in ends.items():
            self._built[topic] = loop.create_future()
            reading = builder.read(topic, partition, end, self._take, closed=self._closed)
            task = asyncio.ensure_future(reading)
            task.add_done_callback(partial(self._was_built, topic))
            self._building.append(task)

    @property
    def is_built(self) -> bool:
        """Whether all is there."""
        return all(each.done() for each in self._built.values())

    def note(self, changes: Iterable[Shelved | Gone]) -> None:
        """Take what has become durable, in the order in which it was written."""
        self._gathered += changes
        if len(self._gathered) >= _GATHERED_MAX and self._putting is None:
            self._putting = asyncio.ensure_future(self._put())
            self._putting.add_done_callback(self._was_put)

    async def find(self, topic: str, keys: Collection[str]) -> list[tuple[str, str, str, bytes]]:
        """Return kind, key, status and value of what a topic has; an end has no value."""
        await self._is_there(topic)
        return await self._asked(partial(self._shelf.find, keys))

    async def due(self, before_ms: int, *, limit: int, offset: int, ended: bool) -> list[Due]:
        """Return what has had its time: ended goals and tasks, or sessions that have none.

        Args: offset: so many are passed over.
        """
        await self._is_there(*self._built)
        look = self._shelf.ended if ended else self._shelf.empty
        return await self._asked(partial(look, before_ms, limit=limit, offset=offset))

    def close(self) -> None:
        """Let go of it."""
        self._closed.set()
        for each in self._built.values():
            if not each.done():
                each.set_result(None)
        self._shelf.close()

    async def _is_there(self, *topics: str) -> None:
        for topic in topics:
            if topic in self._built:
                await asyncio.shield(self._built[topic])
        await self._put()

    async def _asked(self, question: Callable[[], list[_Found]]) -> list[_Found]:
        """Return an answer; nothing once it was closed."""
        try:
            return await self._ask(question)
        except TaskQueueUnavailable:
            if not self._closed.is_set():
                raise
            return []

    # ------------------------------------------------------------------ what is new
    async def _put(self) -> None:
        async with self._lock:
            gathered, self._gathered = self._gathered, []
            if gathered:
                self._next += 1
                await self._asked(partial(self._applied, gathered, self._next))

    def _applied(self, rows: list[Shelved | Gone], offset: int) -> list[None]:
        """Put there what has gathered, newer than all before it (a thread's)."""
        last = {row.key: row for row in rows}
        self._shelf.apply(row._replace(offset=offset, partition=0) for row in last.values())
        return []

    def _was_put(self, task: asyncio.Task[None]) -> None:
        self._putting = None
        self._tell(task)

    def _tell(self, task: asyncio.Future[Any]) -> None:
        if task.cancelled() or (error := task.exception()) is None or self._closed.is_set():
            return
        self._fail(error)

    # ------------------------------------------------------------------ what was there
    def _was_built(self, topic: str, task: asyncio.Future[Any]) -> None:
        self._tell(task)
        if not task.cancelled() and task.exception() is None and not self._built[topic].done():
            self._built[topic].set_result(None)

    def _take(self, records: list[ReadRecord]) -> None:
        """Take what was there before (a thread's)."""
        rows = [row for each in records if (row := self._row(each)) is not None]
        if rows:
            self._shelf.apply(rows)

    def _row(self, record: ReadRecord) -> Shelved | Gone | None:
        if record.key is None:
            return None
        key = record.key.decode(errors="replace")
        if record.value is None:
            return Gone(key, 0, record.offset)
        try:
            kind, found = self._codec.decode(record.value)
        except DecodeError:
            return None  # whoever took the partition has told of it
        if "session_id" not in found:
            return None  # of a later release
        return row_of(kind, key, found, record.value, offset=record.offset)
