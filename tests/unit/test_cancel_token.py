from __future__ import annotations

import asyncio
import threading

import pytest

from streams.handler_api import Cancelled, CancelToken
from tests.support.virtual_time import virtual_time


def test_a_token_flips_once_and_says_why() -> None:
    token = CancelToken()
    assert (bool(token), token.reason) == (False, None)
    token.check()
    token.flip("cancelled")
    token.flip("timeout")
    assert (bool(token), token.reason) == (True, "cancelled")
    with pytest.raises(Cancelled, match="cancelled") as raised:
        token.check()
    assert raised.value.reason == "cancelled"


def test_what_comes_after_a_shutdown_says_more() -> None:
    token = CancelToken()
    token.flip("shutdown")
    token.flip("cancelled")
    assert token.reason == "cancelled"


def test_a_thread_that_waits_is_woken_from_another() -> None:
    token = CancelToken()
    waits = threading.Event()
    woken: list[bool] = []

    def wait() -> None:
        waits.set()
        woken.append(token.wait(30))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(30)
    token.flip("timeout")
    thread.join(30)
    assert woken == [True]
    assert token.wait() is True


def test_a_wait_ends_without_a_flip_when_its_time_is_up() -> None:
    assert CancelToken().wait(0.001) is False


async def test_a_coroutine_that_waits_is_woken_from_a_thread() -> None:
    token = CancelToken()
    waiting = asyncio.ensure_future(asyncio.wait_for(token, 30))
    await asyncio.sleep(0)
    await asyncio.to_thread(token.flip, "shutdown")
    assert await waiting == "shutdown"
    assert await token == "shutdown"


@virtual_time
async def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    token = CancelToken()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(token, 1)
    assert token._wakers == []


def test_the_time_that_is_left_runs_down_to_nothing() -> None:
    now = [100.0]
    token = CancelToken(lambda: now[0])
    assert token.seconds_left is None
    token.expires_in(None)
    assert token.seconds_left is None
    token.expires_in(2_500)
    assert token.seconds_left == 2.5
    now[0] = 200.0
    assert token.seconds_left == 0.0
