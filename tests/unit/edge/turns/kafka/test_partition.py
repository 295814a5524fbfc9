"""An owned partition: transactions one after another, who is told what, and what it holds."""

from __future__ import annotations

import pytest

from streams.agents.transaction import Overdue
from streams.core.turn.owner import Begun
from streams.edge.turns.kafka.partition import OwnedPartition
from streams.errors import BrokerError
from tests.support.turn_partition import (
    Told,
    Transactions,
    fetched,
    is_open,
    partition_of,
    task_turn,
)

NOW = 1_000


def begin(partition: OwnedPartition) -> None:
    held = partition.owner.best(NOW)
    assert held is not None
    assert partition.owner.begin(held, NOW) is Begun.RUN


async def test_what_gathers_during_a_transaction_goes_into_the_next_one() -> None:
    told, transactions = Told(), Transactions()
    with partition_of(told, transactions) as partition:
        for offset in range(3):
            task_turn(partition, offset)
        partition.absorb()
        begin(partition)
        partition.wake()
        await is_open(transactions)
        begin(partition)
        begin(partition)
        partition.wake()
        transactions.end(2)
        await partition.written()
    claim = ["turn_claimed", "agent_job"]
    assert transactions.kinds == [claim, claim * 2]


async def test_it_is_durable_when_its_own_transaction_has_ended_and_not_the_one_before() -> None:
    told, transactions = Told(), Transactions()
    answers: list[tuple[str, bool]] = []
    with partition_of(told, transactions) as partition:
        for offset in range(2):
            task_turn(partition, offset)
        partition.absorb()
        begin(partition)
        partition.when_durable(lambda is_durable: answers.append(("first", is_durable)))
        await is_open(transactions)
        begin(partition)
        partition.when_durable(lambda is_durable: answers.append(("second", is_durable)))
        transactions.end()
        await is_open(transactions, 2)
        assert answers == [("first", True)]
        transactions.end()
        await partition.written()
    assert answers == [("first", True), ("second", True)]
    assert told.changes == 2


async def test_a_transaction_that_does_not_end_is_given_up_like_one_that_fails() -> None:
    told, transactions = Told(), Transactions()
    answers: list[bool] = []
    with partition_of(told, transactions, overdue_s=0.05) as partition:
        task_turn(partition, 0)
        partition.absorb()
        begin(partition)
        partition.when_durable(answers.append)
        await partition.written()
        assert partition.gone
        (error,) = told.broken
        assert isinstance(error, Overdue)
        assert str(error) == "a transaction of agent_turns/0 did not end in 0.05 s"
    assert answers == [False]


async def test_a_transaction_that_fails_ends_it_and_nothing_is_durable_any_more() -> None:
    told, transactions = Told(), Transactions()
    transactions.fails = BrokerError("away", retryable=True)
    answers: list[bool] = []
    with partition_of(told, transactions) as partition:
        task_turn(partition, 0)
        partition.absorb()
        begin(partition)
        partition.when_durable(answers.append)
        await is_open(transactions)
        partition.when_durable(answers.append)
        transactions.end()
        await partition.written()
        assert told.broken == [transactions.fails]
        assert answers == [False, False]
        assert partition.gone
        assert not await partition.durable()
    assert (transactions.kinds, told.outcomes) == ([], [])


async def test_an_offset_moves_without_words_when_there_are_none() -> None:
    told, transactions = Told(), Transactions()
    with partition_of(told, transactions) as partition:
        partition.fetched(fetched(b"no turn", 0))
        partition.absorb()
        transactions.end(1)
        await partition.written()
        assert transactions.offsets == [1]
        assert transactions.kinds == [["turn_dead_lettered"]]
        partition.wake()
        await partition.written()
    assert len(transactions.offsets) == 1, "nothing is committed twice"


async def test_outcomes_are_told_when_they_are_durable() -> None:
    told, transactions = Told(), Transactions()
    with partition_of(told, transactions) as partition:
        task_turn(partition, 0, deadline_ms=1)
        partition.absorb()
        held = partition.owner.best(NOW)
        assert held is not None
        assert partition.owner.begin(held, NOW) is Begun.DONE
        partition.wake()
        await is_open(transactions)
        assert told.outcomes == []
        transactions.end()
        await partition.written()
        assert told.outcomes == ["expired"]


async def test_reading_pauses_when_a_thousand_records_wait_and_goes_on_when_few_do() -> None:
    told, transactions = Told(), Transactions()
    with partition_of(told, transactions) as partition:
        for offset in range(999):
            partition.fetched(fetched(b"?", offset))
        assert not partition.wants_pause
        partition.fetched(fetched(b"?", 999))
        assert partition.wants_pause
        partition.paused = True
        partition.owner.lanes.take(0, "s", 0)  # one turn is open: the others cannot all pass it
        waiting = partition._waiting
        while len(waiting) > 250:
            waiting.popleft()
        assert partition.wants_pause
        waiting.popleft()
        assert not partition.wants_pause


async def test_large_records_pause_reading_sooner() -> None:
    told, transactions = Told(), Transactions()
    with partition_of(told, transactions) as partition:
        for offset in range(3):
            partition.fetched(fetched(b"x" * 1_000_000, offset))
        assert not partition.wants_pause
        partition.fetched(fetched(b"x" * 1_000_000, 3))
        assert partition.wants_pause
        partition.absorb()
        assert not partition.wants_pause


async def test_what_the_api_wrote_is_waited_for_by_offset_until_the_partition_is_gone() -> None:
    told, transactions = Told(), Transactions()
    with partition_of(told, transactions) as partition:
        partition.followed("agent.jobs", 7)
        await partition.read_up_to("agent.jobs", 7)
        waits = partition.read_up_to("agent.jobs", 8)
        partition.followed("agent.sessions", 9)
        partition.close()
        await waits


@pytest.mark.parametrize("is_paused", [False, True])
async def test_a_partition_that_stops_takes_and_begins_nothing(is_paused: bool) -> None:
    told, transactions = Told(), Transactions()
    with partition_of(told, transactions) as partition:
        task_turn(partition, 0)
        if is_paused:
            partition.absorb()
        partition.stop()
        partition.absorb()
        assert partition.owner.best(NOW) is None
        assert await partition.emptied(0)
