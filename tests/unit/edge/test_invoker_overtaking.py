"""Intents that wait for a slot: a slow trigger does not hold up the others."""

from __future__ import annotations

import asyncio
from collections import Counter

from streams.handler_api import Context, Event
from streams.settings import Settings
from tests.support.invoker_edge import Rig
from tests.support.invoker_handlers import answer, never, sleeper
from tests.support.virtual_time import virtual_time


async def overtake(rig: Rig, slow: str) -> None:
    """With four slots: let three handlers of a slow trigger begin, and a fast one pass a fourth."""
    rig.deliver(rig.intent("answer", "f0", trigger="fast"))
    await asyncio.sleep(0.1)
    rig.deliver(*(rig.intent(slow, f"s{n}", trigger="slow") for n in range(4)))
    rig.deliver(rig.intent("answer", "f1", trigger="fast"))


@virtual_time
async def test_one_slow_trigger_cannot_fill_the_invoker() -> None:
    rig = await Rig(Settings(invoker_max_outstanding=8), never=never, answer=answer).start()
    rig.deliver(rig.intent("answer", "seen", trigger="fast"))
    await asyncio.sleep(0.1)
    rig.deliver(*(rig.intent("never", f"s{n}", trigger="slow") for n in range(20)))
    rig.deliver(*(rig.intent("answer", f"f{n}", trigger="fast") for n in range(20)))
    await asyncio.sleep(0.1)
    assert [each["dispatch_id"] for each in rig.log.outcomes[1:]] == [f"f{n}" for n in range(20)]
    assert rig.counts.running[-1] == 6


@virtual_time
async def test_what_waits_starts_when_a_slot_is_free() -> None:
    rig = await Rig(Settings(invoker_max_outstanding=2), sleep=sleeper(1)).start()
    rig.deliver(*(rig.intent("sleep", f"d{n}") for n in range(6)))
    await asyncio.sleep(0.5)
    assert rig.counts.running[-1] == 2
    await asyncio.sleep(5)
    assert sorted(each["dispatch_id"] for each in rig.log.outcomes) == [f"d{n}" for n in range(6)]
    assert max(rig.counts.running) == 2
    assert rig.intake.committed == {0: 6}
    assert rig.intake.released == 6


@virtual_time
async def test_what_waits_behind_all_that_has_begun_is_left_to_the_next_owner() -> None:
    rig = await Rig(Settings(invoker_max_outstanding=2), never=never).start()
    rig.deliver(*(rig.intent("never", f"d{n}") for n in range(5)))
    await asyncio.sleep(30)
    assert rig.intake.committed == {0: 2}
    assert await rig.invoker.settle([0], 3.0) == {0: 2}
    assert rig.intake.released == 3
    words = [ids for _, ids in rig.log.words]
    assert {each for ids in words for each in ids} == {"d0", "d1"}


@virtual_time
async def test_what_was_overtaken_is_leased_and_holds_nothing_up() -> None:
    rig = await Rig(Settings(invoker_max_outstanding=4), never=never, answer=answer).start()
    await overtake(rig, "never")
    await asyncio.sleep(3)
    assert {each["dispatch_id"] for each in rig.log.outcomes} == {"f0", "f1"}
    assert {each for _, ids in rig.log.words for each in ids} == {"s0", "s1", "s2", "s3"}
    assert rig.intake.committed == {0: 6}


@virtual_time
async def test_the_lease_of_what_was_overtaken_ends_with_its_handler() -> None:
    settings = Settings(invoker_max_outstanding=4, lease_ms=15_000)
    rig = await Rig(settings, sleep=sleeper(4), answer=answer).start()
    await overtake(rig, "sleep")
    await asyncio.sleep(100)
    assert len(rig.log.outcomes) == 6
    named = Counter(each for _, ids in rig.log.words for each in ids)
    assert named == {"s0": 1, "s1": 1, "s2": 1, "s3": 2}  # s3 after 1 and 6 seconds


@virtual_time
async def test_what_was_overtaken_stays_here_when_its_partition_moves() -> None:
    gate = asyncio.Event()

    async def wait(_event: Event, _context: Context) -> None:
        await gate.wait()

    rig = await Rig(Settings(invoker_max_outstanding=4), wait=wait, answer=answer).start()
    await overtake(rig, "wait")
    assert await rig.invoker.settle([0], 3.0) == {0: 6}
    gate.set()
    await asyncio.sleep(1)
    assert len(rig.log.outcomes) == 6
    assert {each["outcome"] for each in rig.log.outcomes} == {"success"}


@virtual_time
async def test_what_waits_when_the_process_stops_is_dropped_or_given_back() -> None:
    rig = await Rig(Settings(invoker_max_outstanding=4), sleep=sleeper(2), answer=answer).start()
    await overtake(rig, "sleep")
    rig.deliver(*(rig.intent("sleep", f"t{n}", trigger="slow") for n in range(2)))
    await rig.invoker.stop()
    outcomes = {each["dispatch_id"]: each["outcome"] for each in rig.log.outcomes}
    assert outcomes == {
        "f0": "success",
        "f1": "success",
        "s0": "success",
        "s1": "success",
        "s2": "success",
        "s3": "interrupted",
    }
    assert rig.intake.committed == {0: 6}


@virtual_time
async def test_an_overtaken_intent_is_dropped_when_its_partition_is_lost() -> None:
    rig = await Rig(Settings(invoker_max_outstanding=4), sleep=sleeper(2), answer=answer).start()
    await overtake(rig, "sleep")
    rig.invoker.lose([0])
    await asyncio.sleep(10)
    assert "s3" not in {each["dispatch_id"] for each in rig.log.outcomes}
    assert len(rig.log.outcomes) == 5
