"""Partitions that are to be taken: tried again while that may help, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import cast

import pytest

from streams.agents.transaction import Overdue
from streams.core.turn.bookmark import Bookmark
from streams.edge.turns.kafka.arrivals import Arrivals
from streams.edge.turns.kafka.taking import Taken, Taker
from streams.errors import BrokerError
from tests.support.virtual_time import virtual_time

PARTITION = 3


class Cluster:
    """What a taker asks: taking fails so often, in one way."""

    def __init__(self, error: BrokerError, times: int) -> None:
        self.left = [error] * times
        self.tried = 0

    def bookmarks(self, partitions: Collection[int]) -> dict[int, Bookmark | None]:
        return dict.fromkeys(partitions)

    def take(self, partitions: Collection[int]) -> Mapping[int, object]:
        self.tried += 1
        if self.left:
            raise self.left.pop()
        return dict.fromkeys(partitions)


class Wanting:
    """A worker that wants its partition until it has it, or is broken."""

    def __init__(self) -> None:
        self.owned: list[int] = []
        self.failed: list[BaseException] = []

    def is_wanted(self, partition: int) -> bool:
        return partition not in self.owned

    def is_leaving(self, partition: int) -> bool:
        del partition
        return False

    def own(self, number: int, taken: Taken) -> None:
        del taken
        self.owned.append(number)

    def fail(self, error: BaseException) -> None:
        self.failed.append(error)


async def taken(cluster: Cluster) -> Wanting:
    async def ask(question: object, *args: object) -> object:
        assert callable(question)
        return question(*args)

    worker = Wanting()
    arrivals = Arrivals(cast("Taker", cluster), worker, ask=ask, silence_ms=6_000)
    arrivals.take([PARTITION])
    await arrivals.ended()
    await asyncio.sleep(0)  # its end is told in a callback
    return worker


@pytest.mark.parametrize(
    ("error", "times"),
    [
        pytest.param(BrokerError("away", retryable=True), 100, id="an-outage"),
        pytest.param(Overdue("hangs", retryable=True), 4, id="as-many-hanging-calls-as-may-be"),
    ],
)
@virtual_time
async def test_a_partition_is_taken_once_that_is_possible(error: BrokerError, times: int) -> None:
    cluster = Cluster(error, times)
    worker = await taken(cluster)
    assert (worker.owned, worker.failed, cluster.tried) == ([PARTITION], [], times + 1)


@virtual_time
async def test_one_call_more_that_hangs_ends_the_worker() -> None:
    """Each has lost a thread, and a client with threads of its own."""
    error = Overdue("hangs", retryable=True)
    worker = await taken(Cluster(error, 5))
    assert (worker.owned, worker.failed) == ([], [error])


@virtual_time
async def test_what_no_waiting_mends_ends_the_worker_at_once() -> None:
    error = BrokerError("refused", retryable=False)
    worker = await taken(Cluster(error, 1))
    assert (worker.owned, worker.failed) == ([], [error])
