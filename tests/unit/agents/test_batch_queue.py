"""A stage's queue merges and splits fetched lists, and knows what it holds."""

from __future__ import annotations

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


def event(
    first: int,
    count: int,
    *,
    size: int = 10,
    generation: int = 1,
    seek: int = 1,
    follows: int | None = None,
) -> Event:
    records = [LogRecord(first + n, 0, b"k", b"x" * size, []) for n in range(count)]
    follows = first if follows is None else follows
    batch = Batch(PLACE, generation, records, seek, follows)
    return Event(None, None, batch, {}, SimpleNamespace())


def queue(records_max: int = 100, flow: FlowControlEvent | None = None) -> BatchQueue:
    if flow is None:
        flow = FlowControlEvent()
        flow.resume()
    made = BatchQueue(maxsize=1_000, flow_control=flow, clear_on_resume=True)
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


async def test_what_comes_before_flow_goes_on_is_kept() -> None:
    flow = FlowControlEvent()
    held = queue(flow=flow)
    flow.resume()
    held.put_nowait(event(0, 3, size=5_000))
    flow.suspend()
    flow.clear()
    assert (held.qsize(), held.empty()) == (0, True)
    flow.resume()
    held.put_nowait(event(3, 5))  # fetched after the seek, before Faust resumes once more
    flow.resume()
    assert taken(held) == (3, 5)


async def test_lists_with_one_missing_between_them_are_not_merged() -> None:
    held = queue()
    held.put_nowait(event(0, 30))
    held.put_nowait(event(60, 10))
    assert [taken(held), taken(held)] == [(0, 30), (60, 10)]


async def test_a_list_follows_the_one_before_it_whatever_offsets_lie_between() -> None:
    held = queue()
    held.put_nowait(event(0, 30))
    held.put_nowait(event(35, 10, follows=30))  # markers of transactions take offsets, too
    assert taken(held) == (0, 40)


async def test_each_part_of_a_split_list_follows_the_one_before() -> None:
    held = queue()
    held.put_nowait(event(0, 250, follows=0))
    follows = [held.get_nowait().value.follows for _ in range(3)]
    assert follows == [0, 100, 200]
