from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from streams.edge.executors import loop_watch
from streams.edge.executors.call import Call
from streams.edge.executors.loop_watch import LoopWatch
from streams.handler_api import Context, Event
from streams.settings import Settings
from tests.support.invoker_edge import Rig, intent_value
from tests.support.odd_handlers import in_process

TICK_S = 0.01


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second be a few ticks."""
    monkeypatch.setattr(loop_watch, "TICK_S", TICK_S)
    monkeypatch.setattr(loop_watch, "LIMIT_S_MIN", 5 * TICK_S)
    monkeypatch.setattr(loop_watch, "TOLD_AFTER_S", 2 * TICK_S)


def a_call(timeout_ms: int | None = None) -> Call:
    return Call(
        handler=in_process("nothing"),
        event=intent_value("h", "d1")["event"],
        context=Context(
            attempt=1,
            attempt_id="d1.1",
            dispatch_id="d1",
            trigger_id="on-issue",
            binding_key="on-issue@v1",
            event_id="e1",
        ),
        purpose="handler",
        timeout_ms=timeout_ms,
        ended=lambda _: None,
    )


class Watched:
    """A watch over this loop, and what it says."""

    def __init__(self, call: Call | None, *, limit_s: float = 1_000, watched: bool = True) -> None:
        self.blocked = threading.Event()
        self.stuck = threading.Event()
        self.culprits: list[tuple[Call | None, float]] = []
        self.asked = threading.Event()

        def is_watched() -> bool:
            self.asked.set()
            return watched

        def on_stuck(culprit: Call | None, seconds: float) -> None:
            self.culprits.append((culprit, seconds))
            self.stuck.set()

        self.watch = LoopWatch(
            running=lambda: call,
            watched=is_watched,
            limit_s=limit_s,
            on_blocked=self.blocked.set,
            on_stuck=on_stuck,
        )
        self.watch.start()

    async def stop(self) -> None:
        self.watch.stop()
        await asyncio.to_thread(self.watch.join, 30)


def hold_up(holds: threading.Event) -> None:
    """Hold up the event loop: what no handler should do."""
    assert holds.wait(60)


async def test_who_holds_up_the_loop_is_named_while_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched(a_call())
    hold_up(watched.blocked)
    await watched.stop()
    line = next(each for each in caplog.records if each.message == "handler_blocks_loop")
    assert line.levelno == logging.WARNING
    assert (line.__dict__["attempt_id"], line.__dict__["binding_key"]) == ("d1.1", "on-issue@v1")
    assert "hold_up" in line.__dict__["where"]
    assert "test_loop_watch.py" in line.__dict__["where"]
    assert watched.culprits == []


async def test_a_loop_that_stands_still_for_too_long_is_given_up_once() -> None:
    call = a_call()
    watched = Watched(call, limit_s=10 * TICK_S)
    hold_up(watched.stuck)
    await watched.stop()
    ((culprit, seconds),) = watched.culprits
    assert culprit is call
    assert seconds == pytest.approx(10 * TICK_S)


async def test_a_nearer_timeout_of_the_call_counts_and_none_below_the_least() -> None:
    for timeout_ms, expected_s in ((80, 0.08), (1, 5 * TICK_S)):
        watched = Watched(a_call(timeout_ms))
        hold_up(watched.stuck)
        await watched.stop()
        ((_, seconds),) = watched.culprits
        assert seconds == pytest.approx(expected_s)


async def test_what_is_no_handler_is_given_up_as_well() -> None:
    watched = Watched(None, limit_s=0)
    hold_up(watched.stuck)
    await watched.stop()
    assert watched.culprits[0][0] is None


async def test_a_loop_without_handlers_is_left_alone() -> None:
    watched = Watched(None, limit_s=0, watched=False)
    hold_up(watched.asked)
    watched.asked.clear()
    hold_up(watched.asked)  # it looked again, and found nothing to watch
    await watched.stop()
    assert not watched.blocked.is_set()
    assert watched.culprits == []


async def test_an_invoker_whose_loop_stands_still_ends_its_process() -> None:
    ends = threading.Event()

    async def block(_event: Event, _context: Context) -> None:
        hold_up(ends)

    rig = Rig(Settings(lease_ms=1_000), block=block)
    codes: list[int] = []

    def exit_now(code: int) -> None:
        codes.append(code)
        ends.set()

    rig.exit_with(exit_now)
    await rig.start()
    outcome: dict[str, Any] = await rig.outcome(rig.intent("block", timeout_ms=40))
    assert codes == [7]
    assert rig.counts.blocked_count >= 1
    # A process that went on, as no real one does: its own word counts as late.
    assert outcome["outcome"] in ("success", "timeout")
    await rig.invoker.stop()
