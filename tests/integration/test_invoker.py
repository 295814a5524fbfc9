from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from streams.edge.invoker.intake import KafkaIntake
from streams.errors import BrokerError
from streams.handler_api import Context, Event, Handler
from tests.support.broker import Kafka
from tests.support.eventually import eventually
from tests.support.invoker_edge import Rig
from tests.support.invoker_group import PARTITIONS, InvokerGroup
from tests.support.odd_handlers import in_process

pytestmark = pytest.mark.broker

MakeGroup = Callable[..., InvokerGroup]


@pytest_asyncio.fixture
async def make_group(kafka: Kafka) -> AsyncIterator[MakeGroup]:
    """Make groups that are stopped when the test ends, however it ends."""
    groups: list[InvokerGroup] = []

    def make(**functions: Callable[[Event, Context], Any] | Handler) -> InvokerGroup:
        groups.append(InvokerGroup(kafka.settings, **functions))
        return groups[-1]

    yield make
    for group in groups:
        await group.stop()


async def at_once(_event: Event, _context: Context) -> None:
    """End before anything else happens."""


def plain(event: Event, _context: Context) -> str:
    return event.kind


class Gate:
    """A handler that runs until the test opens it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    @property
    def handler(self) -> Callable[[Event, Context], Any]:
        async def wait(_event: Event, _context: Context) -> str:
            await self._open.wait()
            return "opened"

        return wait


async def test_every_intent_gets_one_outcome_in_its_home_partition(make_group: MakeGroup) -> None:
    group = make_group(at_once=at_once, plain=plain)
    await group.join()
    ids = group.invoke("at_once", [f"a{n}" for n in range(50)])
    ids += group.invoke("plain", [f"p{n}" for n in range(50)])
    outcomes = await group.outcomes(100)
    assert sorted(each["dispatch_id"] for each in outcomes) == sorted(ids)
    assert {each["outcome"] for each in outcomes} == {"success"}
    for each in outcomes:
        assert each["partition"] == (ids.index(each["dispatch_id"]) + 1) % PARTITIONS
    assert group.functions.runs == dict.fromkeys(ids, 1)


async def test_unknown_handlers_and_large_results_are_answered(make_group: MakeGroup) -> None:
    async def large(_event: Event, _context: Context) -> str:
        return "x" * 300_000

    group = make_group(large=large)
    await group.join()
    group.invoke("large", ["large"])
    group.invoke("gone", ["gone"])
    outcomes = {each["dispatch_id"]: each for each in await group.outcomes(2)}
    assert outcomes["gone"]["outcome"] == "unresolved"
    assert outcomes["large"]["outcome"] == "result_too_large"


@pytest.mark.chaos  # sessions of a second: it needs the machine for itself
async def test_a_rebalance_runs_no_handler_twice(make_group: MakeGroup) -> None:
    """Two members join while handlers run, one leaves while they still run."""
    gate = Gate()
    group = make_group(wait=gate.handler, at_once=at_once)
    first = await group.join()
    ids = group.invoke("wait", [f"w{n}" for n in range(20)])
    await eventually(lambda: len(group.functions.running) == 20, "20 handlers run")
    await group.join()
    ids += group.invoke("at_once", [f"a{n}" for n in range(200)])
    await group.join()
    ids += group.invoke("at_once", [f"b{n}" for n in range(200)])
    await group.outcomes(400)
    leaving = asyncio.ensure_future(group.leave(first))
    await eventually(lambda: not first.intake.assignment, "the first member gives up its share")
    await group.balanced()
    gate.open()
    await leaving
    ids += group.invoke("at_once", [f"c{n}" for n in range(20)])
    outcomes = await group.outcomes(440)
    assert sorted(each["dispatch_id"] for each in outcomes) == sorted(ids)
    assert {each["outcome"] for each in outcomes} == {"success"}
    assert group.functions.runs == dict.fromkeys(ids, 1)


async def test_what_was_started_before_a_rebalance_is_leased(make_group: MakeGroup) -> None:
    gate = Gate()
    group = make_group(wait=gate.handler)
    first = await group.join()
    ids = group.invoke("wait", [f"w{n}" for n in range(8)])
    await eventually(lambda: len(group.functions.running) == 8, "8 handlers run")
    leaving = asyncio.ensure_future(group.leave(first))
    await group.all_committed()
    leased = {
        (partition, running["dispatch_id"])
        for partition, word in await group.words()
        for running in word["running"]
    }
    assert leased == {((n + 1) % PARTITIONS, dispatch_id) for n, dispatch_id in enumerate(ids)}
    gate.open()
    await leaving


async def test_a_member_that_comes_back_runs_only_what_is_new(make_group: MakeGroup) -> None:
    group = make_group(at_once=at_once)
    member = await group.join()
    group.invoke("at_once", [f"a{n}" for n in range(100)])
    await group.outcomes(100)
    await group.leave(member)
    await group.all_committed()
    group.invoke("at_once", [f"b{n}" for n in range(10)])
    await group.join()
    assert len(await group.outcomes(110)) == 110
    assert set(group.functions.runs.values()) == {1}


async def test_no_more_handlers_run_than_allowed_and_all_run_in_the_end(
    make_group: MakeGroup,
) -> None:
    """The bound holds past the time after which partitions are paused, and they are resumed."""
    gate = Gate()
    group = make_group(wait=gate.handler)
    member = await group.join(invoker_max_outstanding=5)
    ids = group.invoke("wait", [f"w{n}" for n in range(200)])
    await eventually(lambda: member.intake.paused, "the partitions are paused")
    assert len(group.functions.running) == 5
    gate.open()
    outcomes = await group.outcomes(200)
    assert sorted(each["dispatch_id"] for each in outcomes) == sorted(ids)
    assert group.functions.running_max == 5
    assert not member.intake.paused


async def test_a_member_that_is_full_still_hands_over_partitions(make_group: MakeGroup) -> None:
    gate = Gate()
    group = make_group(wait=gate.handler)
    first = await group.join(invoker_max_outstanding=4)
    ids = group.invoke("wait", [f"w{n}" for n in range(40)])
    await eventually(lambda: first.intake.paused, "the partitions are paused")
    await group.join(invoker_max_outstanding=1_000)
    gate.open()
    outcomes = await group.outcomes(40)
    assert sorted(each["dispatch_id"] for each in outcomes) == sorted(ids)
    assert group.functions.runs == dict.fromkeys(ids, 1)


async def test_a_member_that_is_full_reads_what_it_takes_over_later(make_group: MakeGroup) -> None:
    gate = Gate()
    group = make_group(wait=gate.handler)
    first = await group.join(invoker_max_outstanding=2)
    second = await group.join(invoker_max_outstanding=2)
    ids = group.invoke("wait", [f"w{n}" for n in range(80)])
    await eventually(lambda: first.intake.paused, "the partitions of the first are paused")
    await eventually(lambda: second.intake.paused, "the partitions of the second are paused")
    leaving = asyncio.ensure_future(group.leave(second))
    await eventually(lambda: len(first.intake.assignment) == PARTITIONS, "the first takes over")
    gate.open()
    await leaving
    outcomes = await group.outcomes(80)
    assert sorted(each["dispatch_id"] for each in outcomes) == sorted(ids)
    assert group.functions.runs == dict.fromkeys(ids, 1)


async def test_a_member_reads_what_it_gave_up_while_it_was_full_and_gets_back(
    make_group: MakeGroup,
) -> None:
    gate = Gate()
    group = make_group(wait=gate.handler)
    first = await group.join(invoker_max_outstanding=4)
    group.invoke("wait", [f"w{n}" for n in range(40)])
    await eventually(lambda: first.intake.paused, "the partitions are paused")
    second = await group.join(invoker_max_outstanding=1_000)
    gate.open()
    await group.outcomes(40)
    await eventually(lambda: not first.intake.paused, "the first has room")
    await group.leave(second)
    await group.balanced()
    ids = group.invoke("wait", [f"x{n}" for n in range(40)])
    outcomes = await group.outcomes(80)
    assert {each["dispatch_id"] for each in outcomes} >= set(ids)


async def test_twenty_thousand_intents_are_answered_once_each(make_group: MakeGroup) -> None:
    group = make_group(at_once=at_once)
    await group.join()
    ids = group.invoke("at_once", [f"d{n}" for n in range(20_000)])
    outcomes = await group.outcomes(20_000)
    assert len(outcomes) == 20_000
    assert {each["dispatch_id"] for each in outcomes} == set(ids)


async def test_a_missing_topic_is_refused_at_start_with_its_remedy(kafka: Kafka) -> None:
    intake = KafkaIntake(kafka.settings, topic="no.such.topic", group="test.no.such.topic")
    with pytest.raises(BrokerError, match=r"no\.such\.topic: invoker cannot read") as refused:
        await intake.start(Rig().invoker)
    assert refused.value.remedy == "create it with `harn topology apply`"
    await intake.stop()


# ---------------------------------------------------------------------- ending early
async def test_a_cancel_reaches_whoever_runs_the_invocation(make_group: MakeGroup) -> None:
    gate = Gate()
    group = make_group(wait=gate.handler)
    await group.join()
    await group.join()
    ids = group.invoke("wait", [f"w{n}" for n in range(8)])
    await eventually(lambda: len(group.functions.running) == 8, "8 handlers run")
    group.append(group.cancels, b"garbage")
    group.cancel("w3")
    group.cancel("w4", fence=2)  # of an invocation that nobody has
    (cancelled,) = await group.outcomes(1)
    assert (cancelled["dispatch_id"], cancelled["outcome"]) == ("w3", "cancelled")
    assert cancelled["error"] == "cancelled: somebody asked for it"
    gate.open()
    outcomes = {each["dispatch_id"]: each["outcome"] for each in await group.outcomes(8)}
    assert outcomes == {each: "cancelled" if each == "w3" else "success" for each in ids}


async def test_a_cancel_that_comes_before_its_intent_ends_it_before_it_begins(
    make_group: MakeGroup,
) -> None:
    group = make_group(at_once=at_once)
    member = await group.join()
    group.cancel("early")
    await eventually(lambda: len(member.invoker.cancelled_before) == 1, "the cancel is heard")
    group.invoke("at_once", ["early", "other"])
    outcomes = {each["dispatch_id"]: each["outcome"] for each in await group.outcomes(2)}
    assert outcomes == {"early": "cancelled", "other": "success"}
    assert group.functions.runs == {"other": 1}


async def test_handlers_in_processes_are_answered_for_whatever_they_do(
    make_group: MakeGroup,
) -> None:
    group = make_group(
        fine=in_process("answer"), kill=in_process("kill_itself"), leave=in_process("exit_now")
    )
    await group.join(invoker_processes=2)
    for n in range(5):
        group.invoke("kill", [f"kill-{n}"])
        group.invoke("leave", [f"leave-{n}"])
        group.invoke("fine", [f"fine-{n}"])
    outcomes = {each["dispatch_id"]: each for each in await group.outcomes(15)}
    assert len(outcomes) == 15
    for dispatch_id, each in outcomes.items():
        expected = "success" if dispatch_id.startswith("fine") else "failed"
        assert each["outcome"] == expected, each


async def test_an_invoker_whose_event_loop_stands_still_says_how_all_that_ran_has_ended(
    make_group: MakeGroup,
) -> None:
    ended = threading.Event()
    gate = Gate()
    codes: list[int] = []

    async def block(_event: Event, _context: Context) -> None:
        assert ended.wait(60)

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    group = make_group(wait=gate.handler, block=block)
    group.exit_now = end
    await group.join(lease_ms=5_000)
    group.invoke("wait", ["w0", "w1"])
    await eventually(lambda: len(group.functions.running) == 2, "2 handlers run")
    group.invoke("block", ["b"])
    outcomes = await group.outcomes(3)
    assert codes == [7]
    first = {each["dispatch_id"]: each for each in reversed(outcomes)}
    assert first["b"]["outcome"] == "timeout"
    assert "held up the event loop for 5" in first["b"]["error"]
    assert {first["w0"]["outcome"], first["w1"]["outcome"]} == {"interrupted"}
    gate.open()
