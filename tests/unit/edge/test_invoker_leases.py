"""What runs is leased: renewals, and partitions that are given up or lost."""

from __future__ import annotations

import asyncio

import pytest

from streams.errors import BrokerError
from streams.settings import Settings
from tests.support.invoker_edge import Rig
from tests.support.invoker_handlers import answer, never, sleeper
from tests.support.virtual_time import VirtualLoop, virtual_time


@virtual_time
async def test_a_running_handler_renews_its_lease_every_third_of_it() -> None:
    rig = await Rig(Settings(lease_ms=15_000), sleep=sleeper(20)).start()
    rig.deliver(rig.intent("sleep", "d1", home=1), rig.intent("sleep", "d2", home=2))
    await asyncio.sleep(60)
    expected = [(1, ["d1"]), (2, ["d2"])] * 4  # after 1, 6, 11 and 16 seconds
    assert rig.log.words == expected
    assert [each["outcome"] for each in rig.log.outcomes] == ["success", "success"]


@virtual_time
async def test_running_records_name_the_invoker_in_key_and_value() -> None:
    rig = await Rig(never=never).start()
    rig.deliver(rig.intent("never", "d1", home=1, attempt=2, fence=9))
    await asyncio.sleep(2)
    (word,) = rig.log.of_kind("invocations_running")
    assert word.key == f"invoker:{rig.invoker.invoker_id}".encode()
    assert word.value == {
        "invoker_id": rig.invoker.invoker_id,
        "running": [{"dispatch_id": "d1", "attempt": 2, "fence": 9}],
    }


@virtual_time
async def test_a_running_record_that_was_not_acked_is_said_again_soon() -> None:
    rig = await Rig(never=never).start()
    rig.log.failures = [BrokerError("no ack", retryable=True)]
    rig.deliver(rig.intent("never"))
    await asyncio.sleep(1.1)
    assert rig.log.words == []
    await asyncio.sleep(0.9)
    assert rig.log.words == [(3, ["d1"])]
    assert rig.intake.committed == {0: 1}


@virtual_time
async def test_a_process_that_was_stopped_past_its_lease_notices(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    rig = await Rig(Settings(lease_ms=15_000), sleep=sleeper(60)).start()
    rig.deliver(rig.intent("sleep"))
    await asyncio.sleep(7)  # renewed 1 s ago
    loop.jump(20)
    await asyncio.sleep(0.1)
    (late_ms,) = rig.counts.late_ms
    assert 5_990 <= late_ms <= 6_010
    (line,) = [each for each in caplog.records if each.message == "invoker_leases_late"]
    assert (line.__dict__["late_ms"], line.__dict__["invocations"]) == (late_ms, 1)
    await asyncio.sleep(60)
    assert rig.log.outcomes[0]["outcome"] == "success"  # dispatch refuses it by its fence


@virtual_time
async def test_a_partition_is_given_up_after_a_word_for_all_that_was_started() -> None:
    rig = await Rig(never=never, answer=answer).start()
    rig.deliver(rig.intent("answer", "d1"), rig.intent("never", "d2"), rig.intent("answer", "d3"))
    await asyncio.sleep(0)
    offsets = await rig.invoker.settle([0], 3.0)
    assert offsets == {0: 3}
    assert rig.log.words == [(3, ["d2"])]
    assert {each["dispatch_id"] for each in rig.log.outcomes} == {"d1", "d3"}


@virtual_time
async def test_a_handler_goes_on_after_its_partition_was_given_up() -> None:
    rig = await Rig(Settings(lease_ms=15_000), sleep=sleeper(12)).start()
    rig.deliver(rig.intent("sleep"))
    assert await rig.invoker.settle([0], 3.0) == {0: 1}
    await asyncio.sleep(20)
    assert rig.log.words == [(3, ["d1"])] * 3  # at once, and after 5 and 10 seconds
    assert rig.log.outcomes[0]["outcome"] == "success"
    assert rig.intake.committed == {}


@virtual_time
async def test_settling_names_only_what_is_known_when_the_broker_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = await Rig(never=never, answer=answer).start()
    rig.deliver(rig.intent("answer", "d1"))
    await asyncio.sleep(1)
    rig.log.held = []
    rig.deliver(rig.intent("never", "d2"), rig.intent("answer", "d3"))
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert await rig.invoker.settle([0], 3.0) == {0: 1}
    assert loop.time() - began_s == pytest.approx(3.0)
    (line,) = [each for each in caplog.records if each.message == "invoker_unsettled"]
    assert (line.__dict__["partitions"], line.__dict__["intents"]) == ([0], 2)


@virtual_time
async def test_settling_one_partition_leaves_the_others_alone() -> None:
    rig = await Rig(never=never).start()
    rig.deliver(rig.intent("never", "d1", partition=0), rig.intent("never", "d2", partition=1))
    assert await rig.invoker.settle([1], 3.0) == {1: 1}
    assert rig.log.words == [(3, ["d2"])]


@virtual_time
async def test_an_intent_fetched_again_after_its_partition_came_back_waits_for_its_lease() -> None:
    rig = await Rig(never=never).start()
    rig.deliver(rig.intent("never", "d1", offset=0))
    rig.invoker.lose([0])
    rig.deliver(rig.intent("never", "d1", offset=0))
    await asyncio.sleep(0.5)
    assert rig.intake.committed == {}
    await asyncio.sleep(1)
    assert rig.intake.committed == {0: 1}


@virtual_time
async def test_nothing_is_committed_for_lost_partitions() -> None:
    rig = await Rig(sleep=sleeper(1)).start()
    rig.deliver(rig.intent("sleep"))
    rig.invoker.lose([0])
    await asyncio.sleep(10)
    assert len(rig.log.outcomes) == 1
    assert rig.intake.committed == {}
