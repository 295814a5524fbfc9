"""A stage's queue merges and splits fetched lists, and knows what it holds."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from faust.types import TP
from mode.utils.queues import FlowControlEvent

from streams.agents.batch import Batch, BatchQueue
from streams.audit.log import LogRecord

PLACE = TP("mailbox", 0)


class Event:
    """As much of Faust's event as the queue knows."""

    def __init__(self, app: Any, key: Any, value: Batch, headers: Any, message: Any) -> None:
        self.app, self.key, self.value = app, key, value
        self.headers, self.message = headers, message


def event(first: int, count: int, *, size: int = 10, generation: int = 1, seek: int = 1) -> Event:
    records = [LogRecord(first + n, 0, b"k", b"x" * size, []) for n in range(count)]
    return Event(None, None, Batch(PLACE, generation, records, seek), {}, SimpleNamespace())


def queue(records_max: int = 100) -> BatchQueue:
    flow = FlowControlEvent()
    flow.resume()
    made = BatchQueue(maxsize=1_000, flow_control=flow)
    made.records_max = records_max
    return made


def taken(held: BatchQueue) -> tuple[int, int]:
    """First offset and count of the next batch."""
    records = held.get_nowait().value.records
    return records[0].offset, len(records)


async def test_what_waits_is_one_batch_up_to_the_most() -> None:
    held = queue()
    for first in (0, 30, 60, 90):
        held.put_nowait(event(first, 30))
    assert held.qsize() == 120
    assert [taken(held), taken(held)] == [(0, 90), (90, 30)]
    assert held.qsize() == 0
    assert held.empty()


async def test_a_longer_list_takes_several_batches() -> None:
    held = queue()
    held.put_nowait(event(0, 250))
    assert [taken(held) for _ in range(3)] == [(0, 100), (100, 100), (200, 50)]
    assert held.qsize() == 0


async def test_lists_of_another_generation_or_seek_are_not_merged() -> None:
    held = queue()
    held.put_nowait(event(0, 10))
    held.put_nowait(event(10, 10, seek=2))
    held.put_nowait(event(20, 10, seek=2, generation=2))
    assert [taken(held) for _ in range(3)] == [(0, 10), (10, 10), (20, 10)]


async def test_large_records_fill_a_queue_sooner_and_leave_nothing_behind() -> None:
    held = queue()
    held.put_nowait(event(0, 150, size=100_000))
    held.put_nowait(event(150, 7, size=1_500))
    assert held.qsize() > 14_000
    assert [taken(held) for _ in range(2)] == [(0, 100), (100, 57)]
    assert held.qsize() == 0
    held.put_nowait(event(157, 3, size=5_000))
    held.clear()
    assert held.qsize() == 0
    assert held.empty()
    await asyncio.sleep(0)
