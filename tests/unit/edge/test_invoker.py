"""Intents as they come: their order, what is committed, and what is not started again."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from streams.edge.invoker.intake import FetchedIntent
from streams.errors import BrokerError
from streams.handler_api import Context, Event
from streams.settings import Settings
from tests.support.invoker_edge import CODEC, Rig
from tests.support.invoker_handlers import answer, never, sleeper
from tests.support.virtual_time import virtual_time


@virtual_time
async def test_intents_of_a_partition_start_in_the_order_of_their_offsets() -> None:
    order: list[str] = []

    async def note(_event: Event, context: Context) -> None:
        order.append(context.dispatch_id)
        await asyncio.sleep(0)

    rig = await Rig(note=note).start()
    rig.deliver(*(rig.intent("note", f"d{n}") for n in range(20)))
    await asyncio.sleep(0.1)
    assert order == [f"d{n}" for n in range(20)]


@pytest.mark.parametrize("value", [b"", b"garbage", CODEC.encode("tick", {"due_ms": 1})])
@virtual_time
async def test_a_record_that_is_no_intent_is_logged_counted_and_passed(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    rig = await Rig(answer=answer).start()
    rig.deliver(FetchedIntent(1, 5, value, ()))
    await asyncio.sleep(0.3)
    assert rig.intake.committed == {1: 6}
    assert rig.intake.released == 1
    assert rig.counts.unusable_count == 1
    (line,) = [each for each in caplog.records if each.message == "invoker_unusable_intent"]
    assert line.__dict__["position"] == "trigger.invocations/1/5"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"home": 4}, "home_partition is 4, expected 0 to 3"),
        ({"home": -1}, "home_partition is -1, expected 0 to 3"),
        ({"timeout_ms": 0}, "timeout_ms is 0, expected at least 1"),
        ({"dispatch_id": "d" * 300_000}, "dispatch_id has 300000 characters"),
        ({"trigger": "t" * 300_000}, "trigger_id has 300000 characters"),
    ],
)
@virtual_time
async def test_an_intent_whose_outcome_no_broker_would_take_is_none(
    said: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = await Rig(answer=answer).start()
    rig.deliver(rig.intent("answer", **said), rig.intent("answer", "good"))
    await asyncio.sleep(0.3)
    assert rig.intake.committed == {0: 2}
    assert rig.counts.unusable_count == 1
    (line,) = [each for each in caplog.records if each.message == "invoker_unusable_intent"]
    assert line.__dict__["reason"].startswith(reason)
    assert [each["dispatch_id"] for each in rig.log.outcomes] == ["good"]


@virtual_time
async def test_the_observer_hears_of_every_start_and_end() -> None:
    rig = await Rig(answer=answer).start()
    rig.deliver(rig.intent("answer", "d1"), rig.intent("answer", "d2"))
    await asyncio.sleep(0.1)
    assert rig.counts.waits_ms == [10, 10]
    assert rig.counts.outcomes == ["success", "success"]
    assert (max(rig.counts.running), rig.counts.running[-1]) == (2, 0)
    assert set(rig.counts.in_flight.values()) == {0}


@virtual_time
async def test_an_offset_is_committed_only_after_its_outcome_is_acked() -> None:
    rig = await Rig(answer=answer).start()
    rig.log.held = []
    rig.deliver(rig.intent("answer"))
    await asyncio.sleep(30)
    assert rig.log.outcomes
    assert rig.intake.committed == {}
    rig.log.release()
    await asyncio.sleep(1)
    assert rig.intake.committed == {0: 1}


@virtual_time
async def test_a_handler_that_runs_holds_its_offset_until_its_lease_is_in_the_log() -> None:
    rig = await Rig(never=never, answer=answer).start()
    rig.deliver(rig.intent("never", "d1"), rig.intent("answer", "d2"))
    await asyncio.sleep(0.9)
    assert rig.intake.committed == {}
    await asyncio.sleep(1)
    assert rig.log.words == [(3, ["d1"])]
    assert rig.intake.committed == {0: 2}


@virtual_time
async def test_a_failed_commit_is_repeated() -> None:
    rig = await Rig(answer=answer).start()
    rig.deliver(rig.intent("answer"))
    await asyncio.sleep(1)
    rig.intake.committed.clear()
    rig.invoker.commit_failed([0, 9])
    await asyncio.sleep(1)
    assert rig.intake.committed == {0: 1}


@virtual_time
async def test_an_outcome_that_the_broker_did_not_take_is_appended_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = await Rig(answer=answer).start()
    rig.log.failures = [BrokerError("no ack", retryable=True) for _ in range(6)]
    rig.deliver(rig.intent("answer"))
    await asyncio.sleep(60)
    assert len(rig.log.outcomes) == 1
    assert rig.intake.committed == {0: 1}
    assert not rig.invoker.failed.done()
    told = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert told == ["invoker_outcomes_delayed"]


@virtual_time
async def test_a_refusal_of_the_broker_fails_the_service() -> None:
    rig = await Rig(answer=answer).start()
    refusal = BrokerError("not allowed", retryable=False)
    rig.log.failures = [refusal]
    rig.deliver(rig.intent("answer"))
    await asyncio.sleep(60)
    assert rig.invoker.failed.exception() is refusal
    assert rig.log.outcomes == []


@virtual_time
async def test_a_bug_in_the_invoker_fails_the_service() -> None:
    rig = await Rig(answer=answer).start()
    intent = rig.intent("answer")
    with pytest.raises(TypeError):
        rig.deliver(intent._replace(headers=None))  # type: ignore[arg-type]
    assert isinstance(rig.invoker.failed.exception(), TypeError)


@virtual_time
async def test_room_is_released_once_when_the_handler_ends() -> None:
    rig = await Rig(answer=answer, never=never).start()
    rig.deliver(rig.intent("answer", "d1"), rig.intent("never", "d2"))
    await asyncio.sleep(30)
    assert rig.intake.released == 1


@virtual_time
async def test_an_intent_that_runs_here_is_not_started_again() -> None:
    rig = await Rig(sleep=sleeper(5)).start()
    rig.deliver(rig.intent("sleep", "d1", partition=0))
    await asyncio.sleep(0.1)
    rig.deliver(rig.intent("sleep", "d1", partition=1))
    await asyncio.sleep(10)
    assert len(rig.log.outcomes) == 1
    assert rig.intake.committed == {0: 1, 1: 1}
    assert rig.intake.released == 2


@virtual_time
async def test_an_intent_that_ended_here_is_not_started_again() -> None:
    rig = await Rig(answer=answer).start()
    rig.deliver(rig.intent("answer", "d1", partition=0))
    await asyncio.sleep(1)
    rig.deliver(rig.intent("answer", "d1", partition=1))
    await asyncio.sleep(1)
    assert len(rig.log.outcomes) == 1
    assert rig.intake.committed == {0: 1, 1: 1}


@virtual_time
async def test_another_fence_of_a_dispatch_is_started() -> None:
    rig = await Rig(answer=answer).start()
    rig.deliver(rig.intent("answer", "d1", fence=1), rig.intent("answer", "d1", fence=2))
    await asyncio.sleep(1)
    assert [each["fence"] for each in rig.log.outcomes] == [1, 2]


@virtual_time
async def test_a_log_that_was_cut_and_begins_anew_is_read_on() -> None:
    rig = await Rig(answer=answer).start()
    rig.deliver(rig.intent("answer", "d1", offset=500))
    await asyncio.sleep(1)
    rig.deliver(rig.intent("answer", "d2", offset=3))
    await asyncio.sleep(1)
    assert len(rig.log.outcomes) == 2
    assert rig.intake.committed == {0: 4}


@virtual_time
async def test_what_waits_starts_in_the_very_turn_of_the_loop_that_frees_its_slot() -> None:
    """A turn may hold a fold of fifty milliseconds: one more for each start would be felt."""
    turns: list[int] = []
    turn = 0

    def count() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count)

    async def note(_event: Event, _context: Context) -> None:
        turns.append(turn)

    rig = await Rig(Settings(invoker_max_outstanding=2), note=note).start()
    count()
    rig.deliver(*(rig.intent("note", f"d{n}") for n in range(6)))
    await rig.log.wait_for_outcomes(6)
    assert [each - turns[0] for each in turns] == [0, 0, 1, 1, 2, 2]


@virtual_time
async def test_what_waits_and_has_no_handler_ends_at_once_however_much_it_is() -> None:
    rig = await Rig(Settings(invoker_max_outstanding=1), answer=answer).start()
    rig.deliver(rig.intent("answer", "first"), *(rig.intent("gone", f"d{n}") for n in range(3_000)))
    await rig.log.wait_for_outcomes(3_001)
    outcomes = [each["outcome"] for each in rig.log.outcomes]
    assert outcomes == ["success", *["unresolved"] * 3_000]
