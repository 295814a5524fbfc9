"""How an invoker stops: within its drain time, and with a word for all that ran."""

from __future__ import annotations

import asyncio
import threading

import pytest

from streams.handler_api import Context, Event
from streams.settings import Settings
from tests.support.invoker_edge import Rig
from tests.support.invoker_handlers import answer, sleeper
from tests.support.virtual_time import virtual_time


@virtual_time
async def test_an_idle_invoker_stops_at_once() -> None:
    rig = await Rig(answer=answer).start()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await rig.invoker.stop()
    await rig.invoker.stop()
    assert loop.time() == began_s
    assert rig.intake.stopped


@virtual_time
async def test_stopping_gives_up_the_partitions_first_and_lets_handlers_end() -> None:
    rig = await Rig(Settings(drain_ms=20_000), sleep=sleeper(8)).start()
    rig.deliver(rig.intent("sleep"))
    stopping = asyncio.ensure_future(rig.invoker.stop())
    await asyncio.sleep(1)
    assert rig.intake.stopped
    assert rig.intake.committed == {0: 1}
    await stopping
    assert [each["outcome"] for each in rig.log.outcomes] == ["success"]


@virtual_time
async def test_what_has_not_ended_after_the_drain_time_is_interrupted() -> None:
    cleaned: list[bool] = []

    async def careful(_event: Event, _context: Context) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            await asyncio.sleep(0.2)
            cleaned.append(True)

    rig = await Rig(Settings(drain_ms=20_000), careful=careful).start()
    rig.deliver(rig.intent("careful"))
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await rig.invoker.stop()
    assert 20.2 <= loop.time() - began_s <= 20.5
    assert cleaned == [True]
    (outcome,) = rig.log.outcomes
    assert (outcome["outcome"], outcome["error_class"]) == ("interrupted", "none")


@virtual_time
async def test_a_handler_that_ignores_its_cancellation_is_reported_all_the_same() -> None:
    async def stubborn(_event: Event, _context: Context) -> str:
        while True:
            try:
                await asyncio.sleep(50)
                return "too late"
            except asyncio.CancelledError:
                continue

    rig = await Rig(Settings(drain_ms=0), stubborn=stubborn).start()
    rig.deliver(rig.intent("stubborn"))
    await rig.invoker.stop()
    await asyncio.sleep(100)
    assert [each["outcome"] for each in rig.log.outcomes] == ["interrupted"]


async def test_a_thread_that_does_not_end_is_reported_and_its_result_discarded() -> None:
    proceed, entered, left = threading.Event(), threading.Event(), threading.Event()

    def stuck(_event: Event, _context: Context) -> str:
        entered.set()
        proceed.wait(30)
        left.set()
        return "too late"

    rig = await Rig(Settings(drain_ms=0), stuck=stuck).start()
    rig.deliver(rig.intent("stuck"))
    await asyncio.to_thread(entered.wait, 30)
    await rig.invoker.stop()
    assert [each["outcome"] for each in rig.log.outcomes] == ["interrupted"]
    proceed.set()
    await asyncio.to_thread(left.wait, 30)
    await asyncio.to_thread(lambda: None)
    assert [each["outcome"] for each in rig.log.outcomes] == ["interrupted"]


@virtual_time
async def test_intents_that_come_while_stopping_are_left_to_the_next_owner() -> None:
    rig = await Rig(answer=answer, sleep=sleeper(1)).start()
    rig.deliver(rig.intent("sleep", "d1"))
    stopping = asyncio.ensure_future(rig.invoker.stop())
    await asyncio.sleep(0)
    rig.deliver(rig.intent("answer", "d2"))
    await stopping
    assert [each["dispatch_id"] for each in rig.log.outcomes] == ["d1"]
    assert rig.intake.committed == {0: 1}


@virtual_time
async def test_stopping_waits_for_acks_only_so_long(caplog: pytest.LogCaptureFixture) -> None:
    rig = await Rig(answer=answer).start()
    rig.log.held = []
    rig.deliver(rig.intent("answer"))
    await asyncio.sleep(0.1)
    await rig.invoker.stop()
    (line,) = [each for each in caplog.records if each.message == "invoker_unacked"]
    assert line.__dict__["outcomes"] == 1
