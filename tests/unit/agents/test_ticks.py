"""When a tick is sent: by the better one of two clocks, and not in storms."""

from __future__ import annotations

import asyncio
import time

import pytest

from streams.agents.ticks import Ticker
from streams.settings import Settings

GRID_MS = 25
SLACK_MS = 500  # of a busy machine


def ticker() -> Ticker:
    return Ticker(Settings(bootstrap="127.0.0.1:1"), "nowhere", lambda _: b"")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def waits_ms(armed: Ticker) -> float:
    return (armed._armed[0].when() - asyncio.get_running_loop().time()) * 1_000


@pytest.mark.parametrize(
    ("due_in_ms", "stream_ahead_ms", "expected_ms"),
    [
        pytest.param(10_000, -60_000, 10_000, id="no record for long: our clock"),
        pytest.param(10_000, 0, 10_000, id="clocks agree"),
        pytest.param(10_000, 4_000, 6_000, id="the broker is ahead"),
        pytest.param(-500, 0, 0, id="overdue"),
    ],
)
async def test_a_tick_waits_by_the_clock_that_is_ahead(
    due_in_ms: int, stream_ahead_ms: int, expected_ms: int
) -> None:
    armed, now = ticker(), now_ms()
    armed.arm(0, now + due_in_ms, now + stream_ahead_ms)
    assert expected_ms - SLACK_MS <= waits_ms(armed) <= expected_ms + GRID_MS
    armed.clear()
    assert not armed._armed


async def test_a_tick_that_came_back_too_early_waits_for_the_brokers_clock() -> None:
    armed, now = ticker(), now_ms()
    armed._sent[0] = now
    armed.arm(0, now, now - 5_000)
    assert 5_000 - SLACK_MS <= waits_ms(armed) <= 5_000 + GRID_MS
    armed.clear()


async def test_a_broker_whose_clock_went_back_costs_one_tick_and_no_storm() -> None:
    armed, now = ticker(), now_ms()
    due, stream = now + 3_600_000, now + 3_600_000
    armed.arm(0, due, stream)
    assert waits_ms(armed) <= GRID_MS
    armed._sent[0] = due
    armed.arm(0, due, stream)
    assert waits_ms(armed) >= 3_600_000 - SLACK_MS
    armed.clear()
