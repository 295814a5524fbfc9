"""Partitions that are handed over: when others may be given them, and what their turns come to."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from streams.core.turn.bookmark import Bookmark
from streams.core.turn.owner import Begun
from streams.edge.turns.body import Ending
from streams.edge.turns.kafka.departures import Departures
from streams.edge.turns.kafka.partition import OwnedPartition
from streams.edge.turns.kafka.running import Running
from streams.edge.turns.kafka.taking import Taker
from streams.errors import BrokerError
from tests.support.eventually import eventually
from tests.support.kafka_turns import CODEC
from tests.support.turn_partition import Told, Transactions, partition_of, task_turn

NOW = 1_000
LONG_S = 3_600.0


@dataclass
class Group:
    """What stands beside the committed offsets, and what was said to the worker."""

    transactions: Transactions
    away: bool = False
    looks: int = 0
    forgotten: list[int] = field(default_factory=list[int])
    unread: list[int] = field(default_factory=list[int])
    failed: list[BaseException] = field(default_factory=list[BaseException])

    def bookmarks(self, partitions: Collection[int]) -> dict[int, Bookmark | None]:
        self.looks += 1
        if self.away:
            raise BrokerError("away", retryable=True)
        stands = self.transactions.bookmarks
        return dict.fromkeys(partitions, stands[-1] if stands else None)

    def read_no_more(self, partition: OwnedPartition) -> None:
        self.unread.append(partition.number)

    def forget(self, partition: OwnedPartition) -> None:
        self.forgotten.append(partition.number)
        partition.close()

    def fail(self, error: BaseException) -> None:
        self.failed.append(error)


async def ask(question: Any, *args: object) -> Any:
    return question(*args)


def departures(group: Group, *, every_s: float = 0.01) -> Departures:
    taker = cast("Taker", group)
    return Departures(taker, group, ask=ask, now_ms=lambda: NOW, every_s=every_s)


def run_of(partition: OwnedPartition, offset: int = 0) -> Running:
    """A turn that has begun to run."""
    task_turn(partition, offset)
    partition.absorb()
    held = partition.owner.best(NOW)
    assert held is not None
    assert partition.owner.begin(held, NOW) is Begun.RUN
    running = Running(partition.owner, held, CODEC, partition.durable)
    partition.add_run(running)
    return running


def end(partition: OwnedPartition, running: Running) -> None:
    partition.remove_run(running)
    partition.owner.end(running.held, Ending("completed").status, now_ms=NOW)


async def test_where_nothing_runs_it_is_given_up_before_others_may_have_it() -> None:
    transactions = Transactions()
    transactions.end(100)
    group = Group(transactions)
    with partition_of(Told(), transactions) as partition:
        end(partition, run_of(partition))
        await departures(group).begin([partition], "shutdown", LONG_S)
        assert (group.unread, group.forgotten) == ([0], [0])
    assert "turn_finished" in transactions.kinds[-1], "what had ended is written"
    assert [each.yields_ms for each in transactions.bookmarks if each] == [None]
    assert group.looks == 0


async def test_where_a_turn_runs_others_may_have_it_once_its_word_can_be_read() -> None:
    transactions = Transactions()
    group = Group(transactions, away=True)
    with partition_of(Told(), transactions) as partition:
        running = run_of(partition)
        transactions.end()
        await partition.written()
        leaving = departures(group)
        telling = asyncio.ensure_future(leaving.begin([partition], "handover", LONG_S))
        await eventually(lambda: transactions.begun == 2, "its word is on its way")
        assert group.looks == 0
        transactions.end(100)
        await eventually(lambda: group.looks > 1, "it is looked for")
        assert not telling.done()
        group.away = False
        await telling
        words = len(transactions.bookmarks)
        await eventually(lambda: len(transactions.bookmarks) > words + 1, "it goes on saying so")
        assert group.forgotten == []
        end(partition, running)
        await leaving.ended()
    assert group.forgotten == [0]
    claimed, *said = [each.yields_ms for each in transactions.bookmarks if each]
    assert claimed is None
    assert said.pop() is None, "it is done"
    spans = [each for each in said if each is not None]
    assert len(spans) == len(said)
    assert spans == sorted(spans, reverse=True)
    assert LONG_S * 1_000 < spans[0] <= LONG_S * 1_000 + 2_000, "bodies have time to end"
    assert "turn_finished" in transactions.kinds[-1]


@pytest.mark.parametrize("shortened", [False, True])
async def test_what_runs_beyond_the_budget_is_asked_to_end_and_given_back(
    *, shortened: bool
) -> None:
    transactions = Transactions()
    transactions.end(1_000)
    group = Group(transactions)
    with partition_of(Told(), transactions) as partition:
        running = run_of(partition)
        leaving = departures(group)
        await leaving.begin([partition], "handover", LONG_S if shortened else 0.02)
        if shortened:
            await leaving.begin([partition], "shutdown", 0.0)
        await running.cancelled.wait()
        assert running.reason == "handover", "which was first"
        await leaving.ended()
    assert running.abandoned
    assert transactions.kinds[-1][:1] == ["turn_claim_released"]
    assert (group.forgotten, partition.runs) == ([0], {})


async def test_one_whose_transaction_fails_is_done_with() -> None:
    transactions, told = Transactions(), Told()
    transactions.fails = BrokerError("away", retryable=True)
    transactions.end(100)
    group = Group(transactions)
    with partition_of(told, transactions) as partition:
        running = run_of(partition)
        leaving = departures(group)
        await leaving.begin([partition], "handover", LONG_S)
        await leaving.ended()
    assert told.broken == [transactions.fails]
    assert running.abandoned
    assert (group.forgotten, group.failed) == ([0], [])
