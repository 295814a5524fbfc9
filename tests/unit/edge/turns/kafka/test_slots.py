"""Slots of a worker: which turn is begun, when its body starts, and when its slot is free."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from streams.edge.turns.body import Body, Claimed, Ending
from streams.edge.turns.kafka import running
from streams.edge.turns.kafka.partition import OwnedPartition
from streams.edge.turns.kafka.slots import Slots
from tests.support.eventually import eventually
from tests.support.turn_partition import (
    CODEC,
    Told,
    Transactions,
    is_open,
    partition_of,
    task_turn,
)

NOW = 10_000


class Work:
    """Partitions with slots; bodies wait until they are let go."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.errors: list[BaseException] = []
        self.let_go = asyncio.Event()
        self.body: Body = self._wait
        self.partitions: list[OwnedPartition] = []
        self.transactions: list[Transactions] = []
        self.told: list[Told] = []
        self.slots: Slots

    def body_for(self, kind: str, agent_name: str, /) -> Body:
        assert (kind, agent_name) == ("orchestrator_task", "")
        return self._run

    async def _run(self, claimed: Claimed) -> Ending:
        self.started.append(claimed.envelope.job_id)
        return await self.body(claimed)

    async def _wait(self, _claimed: Claimed) -> Ending:
        await self.let_go.wait()
        return Ending("completed")

    def fill(self, partition: OwnedPartition) -> None:
        partition.absorb()

    def doubt(self, partition: OwnedPartition) -> None:
        raise AssertionError(f"{partition} has all records")

    def runs_changed(self) -> None:
        """Nobody looks."""

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)

    def end_all(self, count: int = 1) -> None:
        for each in self.transactions:
            each.end(count)

    async def all_written(self) -> None:
        for each in self.partitions:
            await each.written()


@asynccontextmanager
async def work(slots: int, partitions: int = 1) -> AsyncIterator[Work]:
    made = Work()
    made.slots = Slots(slots, lambda: made.partitions, made, CODEC, lambda: NOW, made)
    with ExitStack() as stack:
        for number in range(partitions):
            transactions, told = Transactions(), Told()
            made.transactions.append(transactions)
            made.told.append(told)
            partition = partition_of(told, transactions, number=number)
            made.partitions.append(stack.enter_context(partition))
        yield made
        made.slots.stop()
        made.let_go.set()
    assert made.errors == []


async def turn_loop() -> None:
    """Let all happen that can happen now."""
    for _ in range(20):
        await asyncio.sleep(0)


def claimed(made: Work) -> list[str]:
    return [run.envelope.job_id for each in made.partitions for run in each.runs.values()]


async def test_a_body_starts_when_its_claim_is_durable_and_not_before() -> None:
    async with work(1) as made:
        task_turn(made.partitions[0], 0)
        made.slots.look_soon()
        await is_open(made.transactions[0])
        await turn_loop()
        assert claimed(made) == ["j0-0"]
        assert made.started == []
        made.end_all()
        await made.all_written()
        await turn_loop()
        assert made.started == ["j0-0"]


async def test_the_best_turn_of_all_partitions_gets_the_slot() -> None:
    async with work(1, partitions=2) as made:
        task_turn(made.partitions[0], 5, priority="normal")
        task_turn(made.partitions[0], 6, priority="low")
        task_turn(made.partitions[1], 3, priority="normal")
        task_turn(made.partitions[1], 9, priority="urgent")
        made.end_all(1_000)
        made.let_go.set()
        made.slots.look_soon()
        await eventually(lambda: len(made.started) == 4, "all ran")
        assert made.started == ["j1-9", "j1-3", "j0-5", "j0-6"]


async def test_no_more_turns_run_than_there_are_slots_and_all_do() -> None:
    async with work(2, partitions=3) as made:
        running, most = 0, 0
        both = asyncio.Event()

        async def body(_claimed: Claimed) -> Ending:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 2:
                both.set()
            await both.wait()  # the first one waits for the second one's slot
            await asyncio.sleep(0)
            running -= 1
            return Ending("completed")

        made.body = body
        for partition in made.partitions:
            for offset in range(3):
                task_turn(partition, offset)
        made.slots.look_soon()
        await turn_loop()
        assert claimed(made) == ["j0-0", "j1-0"]
        made.end_all(1_000)
        await eventually(lambda: len(made.started) == 9, "all ran")
        await made.all_written()
        assert most == 2


async def run_one(made: Work, body: Body) -> list[list[str]]:
    """Run a turn to what its body makes of it; return what was written after its claim."""
    made.body = body
    task_turn(made.partitions[0], 0)
    made.end_all(1_000)
    made.slots.look_soon()
    await turn_loop()
    await eventually(lambda: bool(made.started) and not made.partitions[0].runs, "it ran")
    await made.all_written()
    return made.transactions[0].kinds[1:]


async def test_a_body_that_raises_has_failed_and_the_worker_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # What is captured of its traceback could not be sent between the processes of a parallel run.
    caplog.set_level(logging.CRITICAL, logger=running.__name__)

    async def body(_claimed: Claimed) -> Ending:
        raise ValueError("no \ud800 good")

    async with work(1) as made:
        assert await run_one(made, body) == [["agent_job", "turn_finished"]]
        assert made.told[0].outcomes == ["failed"]


async def test_a_body_that_returns_nonsense_has_failed() -> None:
    async def body(_claimed: Claimed) -> Any:
        return Ending("done", result=7)  # type: ignore[arg-type]

    async with work(1) as made:
        assert await run_one(made, body) == [["agent_job", "turn_finished"]]
        assert made.told[0].outcomes == ["failed"]


async def test_a_body_that_gives_its_turn_back_gets_it_after_a_while() -> None:
    async def body(_claimed: Claimed) -> Ending:
        raise asyncio.CancelledError

    async with work(1) as made:
        assert await run_one(made, body) == [["turn_claim_released", "agent_job"]]
        assert made.partitions[0].owner.lanes.due_ms() == NOW + 1_000
        assert made.told[0].outcomes == []


@pytest.mark.parametrize(
    ("status", "word"), [("completed", "turn_finished"), ("failed", "turn_claim_released")]
)
async def test_what_is_done_when_a_hand_over_is_over_is_not_done_again(
    status: Any, word: str
) -> None:
    async with work(1) as made:

        async def ends(_claimed: Claimed) -> Ending:
            await made.let_go.wait()
            return Ending(status)

        made.body = ends
        made.end_all(100)
        task_turn(made.partitions[0], 0)
        made.slots.look_soon()
        await eventually(lambda: made.started == ["j0-0"], "the turn runs")
        made.partitions[0].stop()
        made.partitions[0].interrupt("handover")
        made.let_go.set()
        assert await made.partitions[0].emptied(30)
        await turn_loop()
        await made.all_written()
        said = [kind for each in made.transactions[0].kinds for kind in each]
        assert word in said
        assert len({"turn_finished", "turn_claim_released"} & set(said)) == 1


async def test_nothing_is_written_of_a_turn_whose_partition_is_gone() -> None:
    async with work(1) as made:
        task_turn(made.partitions[0], 0)
        made.end_all(1_000)
        made.slots.look_soon()
        await eventually(lambda: bool(made.started), "it began")
        (running,) = made.partitions[0].runs.values()
        made.partitions[0].close()
        assert running.cancelled.is_set()
        assert not await running.write({})  # type: ignore[typeddict-item]
        made.let_go.set()
        await turn_loop()
        assert len(made.transactions[0].kinds) == 1
