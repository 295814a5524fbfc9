"""What a stage's consumer hands on of what it fetched around a seek: all of it, once, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from streams.agents.transport import ServedThread, StageConsumer, _Fetched

PLACE = TP("mailbox", 2)


class Consumer(StageConsumer):
    """The consumer without Faust behind it: what a fetch brings is put in by hand."""

    flow_active = True

    def __init__(self, *fetches: _Fetched) -> None:
        self.app: Any = SimpleNamespace(
            live=SimpleNamespace(source=PLACE.topic), consumer_generation_id=7
        )
        self._fetches = deque(fetches)
        self._lists = deque()
        self._handed = {}
        self._seeks = {PLACE: 1}

    @property
    def should_stop(self) -> bool:
        return False

    async def _wait_next_records(self, timeout: float) -> tuple[Any, Any]:  # noqa: ARG002, ASYNC109
        return ({PLACE: self._fetches.popleft()} if self._fetches else {}), {PLACE}

    def _adapt_fetch_wait(self, heard: bool) -> None:
        del heard

    async def offsets(self) -> list[int]:
        """What one call hands on."""
        return [
            record.offset
            async for _, message in self.getmany(1.0)
            for record in message.value.records
        ]


def fetched(seek: int, *offsets: int) -> _Fetched:
    return _Fetched(
        seek,
        [
            SimpleNamespace(offset=each, timestamp=0, timestamp_type=1, value=b"")
            for each in offsets
        ],
    )


async def test_a_list_that_comes_after_a_seek_but_before_the_flow_is_kept() -> None:
    consumer = Consumer(fetched(1, 296, 297, 298), fetched(1, 299))
    consumer.flow_active = False
    assert await consumer.offsets() == []
    consumer.flow_active = True
    assert await consumer.offsets() == [296, 297, 298]
    assert await consumer.offsets() == [299]


async def test_lists_fetched_before_a_seek_are_dropped_also_when_they_were_kept() -> None:
    consumer = Consumer(fetched(1, 296), fetched(1, 290), fetched(2, 296))
    consumer.flow_active = False
    assert await consumer.offsets() == []
    consumer._seeks[PLACE] = 2
    consumer.flow_active = True
    assert await consumer.offsets() == []
    assert await consumer.offsets() == []
    assert await consumer.offsets() == [296]


async def test_a_list_of_a_generation_that_is_over_is_dropped() -> None:
    consumer = Consumer(fetched(1, 296))
    consumer.flow_active = False
    assert await consumer.offsets() == []
    consumer.app.consumer_generation_id = 8
    consumer.flow_active = True
    assert await consumer.offsets() == []


class Watched:
    """A consumer's thread, asked by Faust's watch whether partitions get on."""

    def __init__(self) -> None:
        self.asked: list[TP] = []

    def verify_event_path(self, now: float, tp: TP) -> None:
        del now
        self.asked.append(tp)


class Assigned(Consumer):
    def __init__(self, thread: Watched) -> None:
        super().__init__()
        self._thread: Any = thread

    def assignment(self) -> set[TP]:
        return {PLACE, TP("stage-rows-changelog", 2)}

    async def sleep(self, seconds: float) -> None:  # type: ignore[override]
        del seconds


async def test_fausts_watch_over_its_own_delivery_is_left_out() -> None:
    """A changelog is assigned and never handed on: it looks like a stream that hangs."""
    thread = Watched()
    await Assigned(thread).verify_all_partitions_active()
    assert thread.asked == []


ANSWERS = 100  # more than the loop gives before it waits for the thread


class AskingThread(ServedThread):
    """Asks the event loop as it ends, as a rebalance does that was under way."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str] = []

    async def on_thread_started(self) -> None:
        self.add_future(self._ask_at_the_end())

    async def _ask_at_the_end(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(ANSWERS):
                asked = asyncio.run_coroutine_threadsafe(self._answer(), self.parent_loop)
                self.answers.append(await asyncio.wrap_future(asked))

    async def _answer(self) -> str:
        return "here"


async def test_a_thread_that_asks_as_it_ends_is_answered() -> None:
    thread = AskingThread()
    await thread.start()
    await thread.stop()
    assert thread.answers == ["here"] * ANSWERS
