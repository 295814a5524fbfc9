from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from streams.edge.invoker.intake import FetchedIntent
from streams.errors import BrokerError
from streams.handler_api import Context, Event, Retryable, Terminal
from streams.settings import Settings
from tests.support.invoker_edge import CODEC, Rig
from tests.support.virtual_time import VirtualLoop, virtual_time


async def answer(event: Event, context: Context) -> Any:
    return {"action": event.payload["action"], "attempt": context.attempt_id}


async def never(_event: Event, _context: Context) -> None:
    await asyncio.get_running_loop().create_future()


def sleeper(seconds: float) -> Callable[[Event, Context], Awaitable[str]]:
    async def sleep(_event: Event, _context: Context) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    return sleep


@virtual_time
async def test_an_intent_becomes_an_outcome_in_its_home_partition() -> None:
    rig = await Rig(answer=answer).start()
    rig.deliver(rig.intent("answer", "d1", home=2, attempt=3, fence=5))
    await asyncio.sleep(0.1)
    (appended,) = rig.log.of_kind("invocation_completed")
    assert (appended.topic, appended.partition, appended.key) == ("trigger.dispatches", 2, b"d1")
    assert appended.value == {
        "dispatch_id": "d1",
        "attempt": 3,
        "fence": 5,
        "invoker_id": rig.invoker.invoker_id,
        "outcome": "success",
        "result": '{"action":"opened","attempt":"d1.3"}',
        "error": None,
        "error_class": "none",
        "retry_after_ms": None,
        "usage": None,
        "emissions": [],
        "started_at_ms": 1_700_000_000_000,
        "completed_at_ms": 1_700_000_000_000,
    }


@virtual_time
async def test_the_outcome_carries_its_cause_and_the_headers_of_the_event() -> None:
    rig = await Rig(answer=answer).start()
    headers = [("kind", b"invoke"), ("tenant_id", b"acme"), ("traceparent", b"00-1-2-01")]
    rig.deliver(rig.intent("answer", partition=1, offset=42, headers=headers))
    await asyncio.sleep(0.1)
    assert rig.log.records[0].headers == (
        ("cause", b"trigger.invocations/1/42"),
        ("tenant_id", b"acme"),
        ("traceparent", b"00-1-2-01"),
    )


def _raise(error: BaseException) -> Callable[[Event, Context], Awaitable[None]]:
    async def handler(_event: Event, _context: Context) -> None:
        raise error

    return handler


@pytest.mark.parametrize(
    ("error", "error_class", "retry_after_ms"),
    [
        (ValueError("boom"), "handler_error", None),
        (Terminal("gone"), "terminal", None),
        (Retryable("later", after_ms=7), "handler_error", 7),
        (SystemExit(3), "handler_panic", None),
        (asyncio.CancelledError(), "handler_panic", None),
    ],
)
@virtual_time
async def test_what_a_handler_raises_becomes_a_failed_outcome(
    error: BaseException, error_class: str, retry_after_ms: int | None
) -> None:
    rig = await Rig(bad=_raise(error), answer=answer).start()
    rig.deliver(rig.intent("bad", "d1"), rig.intent("answer", "d2"))
    await asyncio.sleep(0.1)
    failed, fine = rig.log.outcomes
    assert (failed["outcome"], failed["error_class"]) == ("failed", error_class)
    assert failed["retry_after_ms"] == retry_after_ms
    assert fine["outcome"] == "success"
    assert not rig.invoker.failed.done()


async def test_a_plain_function_runs_on_a_thread_and_cannot_end_the_process() -> None:
    names: list[str] = []

    def plain(event: Event, _context: Context) -> str:
        names.append(threading.current_thread().name)
        return event.kind

    def leave(_event: Event, _context: Context) -> None:
        raise SystemExit(1)

    rig = await Rig(plain=plain, leave=leave).start()
    rig.deliver(rig.intent("plain", "d1"), rig.intent("leave", "d2"))
    await rig.log.wait_for(2)
    outcomes = {each["dispatch_id"]: each for each in rig.log.outcomes}
    assert outcomes["d1"]["result"] == '"issues.opened"'
    assert outcomes["d2"]["error_class"] == "handler_panic"
    assert names[0].startswith("handler-")
    await rig.invoker.stop()


@virtual_time
async def test_an_unknown_handler_is_answered_unresolved() -> None:
    rig = await Rig().start()
    rig.deliver(rig.intent("lib::gone"))
    await asyncio.sleep(0.1)
    (outcome,) = rig.log.outcomes
    assert (outcome["outcome"], outcome["error_class"]) == ("unresolved", "unresolved")
    assert rig.intake.released == 1


@virtual_time
async def test_a_result_above_a_third_of_the_largest_record_is_refused() -> None:
    async def large(_event: Event, _context: Context) -> str:
        return "x" * 4_000

    rig = await Rig(
        Settings(max_record_bytes=10_000, http_max_body_bytes=3_000), large=large
    ).start()
    rig.deliver(rig.intent("large"))
    await asyncio.sleep(0.1)
    (outcome,) = rig.log.outcomes
    assert outcome["outcome"] == "result_too_large"
    assert outcome["error"] == "the result has 4002 bytes as JSON, expected at most 3333"


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


@virtual_time
async def test_the_observer_hears_of_every_start_and_end() -> None:
    rig = await Rig(answer=answer).start()
    rig.deliver(rig.intent("answer", "d1"), rig.intent("answer", "d2"))
    await asyncio.sleep(0.1)
    assert rig.counts.waits_ms == [10, 10]
    assert rig.counts.outcomes == ["success", "success"]
    assert (max(rig.counts.running), rig.counts.running[-1]) == (2, 0)
    assert set(rig.counts.in_flight.values()) == {0}


# ---------------------------------------------------------------------- offsets
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
    assert [each.message for each in caplog.records] == ["invoker_outcomes_delayed"]


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


# ---------------------------------------------------------------------- the same intent again
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


# ---------------------------------------------------------------------- slots
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


# ---------------------------------------------------------------------- leases
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


# ---------------------------------------------------------------------- rebalances
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


# ---------------------------------------------------------------------- stopping
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


@virtual_time
async def test_a_task_that_its_loop_cancels_counts_as_interrupted() -> None:
    rig = await Rig(never=never).start()
    rig.deliver(rig.intent("never"))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)
    assert [each["outcome"] for each in rig.log.outcomes] == ["interrupted"]


@virtual_time
async def test_a_failure_is_logged_with_its_traceback_and_an_announced_one_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    rig = await Rig(bad=_raise(ValueError("boom")), end=_raise(Terminal("gone"))).start()
    rig.deliver(rig.intent("bad", "d1"), rig.intent("end", "d2"))
    await asyncio.sleep(0.1)
    bad, end = [each for each in caplog.records if each.name == "harn.handler"]
    assert bad.getMessage() == "handler_failed"
    assert bad.__dict__["attempt_id"] == "d1.1"
    assert bad.__dict__["error"] == "ValueError: boom"
    assert bad.exc_info is not None
    assert end.exc_info is None
