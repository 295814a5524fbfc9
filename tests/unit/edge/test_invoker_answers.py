"""What an invoker makes of a handler: its outcome, whatever the handler did."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from streams.handler_api import Context, Event, Retryable, Terminal
from streams.settings import Settings
from tests.support.invoker_edge import Rig
from tests.support.invoker_handlers import answer, never, raising
from tests.support.virtual_time import virtual_time


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
    headers += [("traceparent", b"0" * 500_000)]  # an outcome with it might not fit into a record
    rig.deliver(rig.intent("answer", partition=1, offset=42, headers=headers))
    await asyncio.sleep(0.1)
    assert rig.log.records[0].headers == (
        ("cause", b"trigger.invocations/1/42"),
        ("tenant_id", b"acme"),
        ("traceparent", b"00-1-2-01"),
    )


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
    rig = await Rig(bad=raising(error), answer=answer).start()
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
    rig = await Rig(bad=raising(ValueError("boom")), end=raising(Terminal("gone"))).start()
    rig.deliver(rig.intent("bad", "d1"), rig.intent("end", "d2"))
    await asyncio.sleep(0.1)
    bad, end = [each for each in caplog.records if each.name == "harn.handler"]
    assert bad.getMessage() == "handler_failed"
    assert bad.__dict__["attempt_id"] == "d1.1"
    assert bad.__dict__["error"] == "ValueError: boom"
    assert bad.exc_info is not None
    assert end.exc_info is None
