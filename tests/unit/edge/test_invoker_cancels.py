"""Ending early: cancels, wherever the invocation is, and what a stop tells handlers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streams.core.wire import CancelInvocation
from streams.edge.invoker.cancels import (
    CANCELS,
    REMEMBERED_MAX,
    REMEMBERED_S,
    CancelBook,
    KafkaCancels,
)
from streams.handler_api import Context, Event
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support import odd_handlers
from tests.support.eventually import eventually
from tests.support.invoker_edge import CODEC, Rig
from tests.support.mock_cluster import mock_cluster
from tests.support.virtual_time import virtual_time


def cancel(dispatch_id: str = "d1", fence: int = 1) -> CancelInvocation:
    return {
        "dispatch_id": dispatch_id,
        "attempt": 1,
        "fence": fence,
        "home_partition": 3,
        "reason": "cancelled: ann asked for it",
    }


class Waiter:
    """Async handlers that wait, and what their tokens said."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.reasons: list[str | None] = []

    async def waits(self, _event: Event, context: Context) -> str:
        try:
            await self.go_on.wait()
        finally:
            self.reasons.append(context.cancelled.reason)
        return "done"


# ---------------------------------------------------------------------- cancels
@virtual_time
async def test_what_runs_is_cancelled_and_reported_so() -> None:
    waiter = Waiter()
    rig = await Rig(waits=waiter.waits).start()
    rig.deliver(rig.intent("waits", "d1"), rig.intent("waits", "d2"))
    await asyncio.sleep(0.1)
    rig.invoker.cancel(cancel("d1"))
    await asyncio.sleep(0.1)
    (outcome,) = rig.log.outcomes
    assert (outcome["dispatch_id"], outcome["outcome"]) == ("d1", "cancelled")
    assert (outcome["error"], outcome["error_class"]) == ("cancelled: ann asked for it", "none")
    assert waiter.reasons == ["cancelled"]
    waiter.go_on.set()
    await asyncio.sleep(0.1)
    assert [each["outcome"] for each in rig.log.outcomes] == ["cancelled", "success"]


@virtual_time
async def test_what_a_handler_answers_to_its_cancel_is_of_no_account() -> None:
    rig = await Rig(wait=odd_handlers.wait_for_token_async).start()
    rig.deliver(rig.intent("wait"))
    await asyncio.sleep(0.1)
    rig.invoker.cancel(cancel())
    rig.invoker.cancel(cancel())
    await asyncio.sleep(10)
    assert [each["outcome"] for each in rig.log.outcomes] == ["cancelled"]


@virtual_time
async def test_what_waits_for_a_slot_is_cancelled_before_it_begins() -> None:
    waiter = Waiter()
    rig = await Rig(Settings(invoker_max_outstanding=1), waits=waiter.waits).start()
    rig.deliver(*(rig.intent("waits", f"d{n}") for n in range(3)))
    await asyncio.sleep(0.1)
    rig.invoker.cancel(cancel("d1"))
    waiter.go_on.set()
    await asyncio.sleep(1)
    outcomes = {each["dispatch_id"]: each["outcome"] for each in rig.log.outcomes}
    assert outcomes == {"d1": "cancelled", "d0": "success", "d2": "success"}
    assert len(waiter.reasons) == 2
    assert rig.intake.committed == {0: 3}


@virtual_time
async def test_a_cancel_names_one_fence() -> None:
    waiter = Waiter()
    rig = await Rig(waits=waiter.waits).start()
    rig.deliver(rig.intent("waits", "d1", fence=2))
    await asyncio.sleep(0.1)
    rig.invoker.cancel(cancel("d1", fence=1))
    waiter.go_on.set()
    await asyncio.sleep(0.1)
    assert [each["outcome"] for each in rig.log.outcomes] == ["success"]


@virtual_time
async def test_a_cancel_that_comes_first_keeps_the_handler_from_running() -> None:
    waiter = Waiter()
    rig = await Rig(waits=waiter.waits).start()
    rig.invoker.cancel(cancel("d1"))
    outcome = await rig.outcome(rig.intent("waits", "d1"))
    assert outcome["outcome"] == "cancelled"
    assert waiter.reasons == []
    assert rig.counts.running[-1] == 0


@virtual_time
async def test_a_cancel_after_the_end_changes_nothing() -> None:
    rig = await Rig(answer=odd_handlers.answer_async).start()
    rig.log.held = []
    outcome = await rig.outcome(rig.intent("answer", "d1"))
    rig.invoker.cancel(cancel("d1"))
    rig.log.release()
    await asyncio.sleep(1)
    assert outcome["outcome"] == "success"
    assert len(rig.log.outcomes) == 1


@virtual_time
async def test_a_cancel_counts_before_a_timeout_that_comes_within_its_grace() -> None:
    go_on = asyncio.Event()

    async def stubborn(_event: Event, _context: Context) -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    rig = await Rig(stubborn=stubborn).start()
    rig.deliver(rig.intent("stubborn", "d1", timeout_ms=1_500))
    await asyncio.sleep(1)
    rig.invoker.cancel(cancel("d1"))
    await asyncio.sleep(5)
    assert [each["outcome"] for each in rig.log.outcomes] == ["cancelled"]
    assert rig.counts.stray_counts == [1]
    go_on.set()


def test_remembered_cancels_are_bounded_in_number_and_in_time() -> None:
    now = [0.0]
    book = CancelBook(lambda: now[0])
    for n in range(REMEMBERED_MAX + 1):
        book.put((f"d{n}", 1), "why")
    assert len(book) == REMEMBERED_MAX
    assert book.take(("d0", 1)) is None
    assert book.take(("d1", 1)) == "why"
    assert book.take(("d1", 1)) is None
    now[0] = REMEMBERED_S
    assert book.take(("d2", 1)) is None
    book.put(("new", 1), "why")
    assert len(book) == 1


# ---------------------------------------------------------------------- the process stops
@virtual_time
async def test_a_stop_flips_tokens_at_once_and_a_result_still_counts() -> None:
    loop = asyncio.get_running_loop()

    async def listens(_event: Event, context: Context) -> dict[str, Any]:
        reason = await context.cancelled
        await asyncio.sleep(1)
        return {"stopped": reason}

    rig = await Rig(Settings(drain_ms=20_000), listens=listens).start()
    rig.deliver(rig.intent("listens"))
    await asyncio.sleep(0.1)
    began_s = loop.time()
    await rig.invoker.stop()
    (outcome,) = rig.log.outcomes
    assert (outcome["outcome"], outcome["result"]) == ("success", '{"stopped":"shutdown"}')
    assert loop.time() - began_s < 2


@virtual_time
async def test_a_handler_that_lets_cancelled_pass_at_a_stop_is_issued_again_elsewhere() -> None:
    async def checks(_event: Event, context: Context) -> None:
        await context.cancelled
        context.cancelled.check()

    rig = await Rig(checks=checks).start()
    rig.deliver(rig.intent("checks"))
    await asyncio.sleep(0.1)
    await rig.invoker.stop()
    assert [each["outcome"] for each in rig.log.outcomes] == ["interrupted"]


@virtual_time
async def test_a_cancel_while_the_process_stops_ends_its_handler() -> None:
    waiter = Waiter()
    rig = await Rig(Settings(drain_ms=20_000), waits=waiter.waits).start()
    rig.deliver(rig.intent("waits"))
    stopping = asyncio.ensure_future(rig.invoker.stop())
    await asyncio.sleep(1)
    rig.invoker.cancel(cancel())
    await stopping
    assert [each["outcome"] for each in rig.log.outcomes] == ["cancelled"]
    assert waiter.reasons == ["cancelled"]


@pytest.mark.parametrize("name", ["wait_for_token", "wait_for_token_async", "never", "check_token"])
async def test_a_stop_ends_processes_and_reports_what_they_ran(name: str) -> None:
    rig = await Rig(
        Settings(drain_ms=0, invoker_processes=1), odd=odd_handlers.in_process(name)
    ).start()
    rig.deliver(rig.intent("odd"))
    await rig.invoker.stop()
    (outcome,) = rig.log.outcomes
    assert outcome["outcome"] == "interrupted"


@pytest.mark.parametrize("name", ["wait_for_token", "finish_after_token_async"])
async def test_a_stop_tells_processes_at_once_and_their_results_still_count(name: str) -> None:
    settings = Settings(drain_ms=60_000, invoker_processes=1)
    rig = await Rig(settings, odd=odd_handlers.in_process(name)).start()
    rig.deliver(rig.intent("odd"))
    await rig.invoker.stop()
    (outcome,) = rig.log.outcomes
    assert outcome["outcome"] == "success"


def test_a_reason_is_remembered_as_far_as_a_record_may_say_it() -> None:
    book = CancelBook(lambda: 0.0)
    book.put(("d1", 1), "x" * 300_000)
    assert book.take(("d1", 1)) == "x" * 1_024


async def test_a_cancel_of_a_name_that_no_dispatch_has_is_logged_and_passed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []

    class Listener:
        def cancel(self, said: CancelInvocation) -> None:
            heard.append(said["dispatch_id"])

        def fail(self, error: BaseException) -> None:
            raise error

    with mock_cluster() as bootstrap:
        settings = Settings(bootstrap=bootstrap)
        producer = make_producer(settings)
        producer.list_topics(CANCELS, timeout=30)  # makes it
        cancels = KafkaCancels(settings, CODEC)
        await cancels.start(Listener())
        for name in ("d" * 300_000, "d1"):
            producer.produce(CANCELS, CODEC.encode("cancel_invocation", cancel(name)), None, 0)
        assert producer.flush(30) == 0
        await eventually(lambda: heard == ["d1"], "the good one is heard")
        await cancels.stop()
    (line,) = [each for each in caplog.records if each.message == "invoker_unusable_cancel"]
    assert line.__dict__["reason"] == "dispatch_id has 300000 characters, expected at most 256"
