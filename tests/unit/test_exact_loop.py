"""The loop whose timers are exact: it waits for time by one call, and for all else by another."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

import pytest

from streams import exact_loop as module
from streams.exact_loop import exact_loop


def run(work: Any) -> Any:
    with asyncio.Runner(loop_factory=exact_loop) as runner:
        return runner.run(work)


def waits_of(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What `select` is asked to wait for from now on, s; it does not wait."""
    waits: list[float] = []

    def note(_reading: Any, _writing: Any, _failing: Any, timeout_s: float) -> None:
        waits.append(timeout_s)

    monkeypatch.setattr(module.select, "select", note)
    return waits


def test_a_wait_is_not_rounded_up_to_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = waits_of(monkeypatch)
    run(asyncio.sleep(0.000_3))
    assert waits
    assert max(waits) <= 0.000_3


def test_what_comes_ends_a_wait_for_time() -> None:
    async def work() -> bytes:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        asyncio.get_running_loop().call_later(0.001, theirs.send, b"word")
        async with asyncio.timeout(60):
            word = await reader.readexactly(4)
        writer.close()
        theirs.close()
        return word

    assert run(work()) == b"word"


def test_signals_and_threads_wake_it() -> None:
    async def work() -> str:
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, heard.set)
        async with asyncio.timeout(60):
            await asyncio.to_thread(signal.raise_signal, signal.SIGUSR1)
            await heard.wait()
        loop.remove_signal_handler(signal.SIGUSR1)
        return "heard"

    assert run(work()) == "heard"


def test_beyond_what_select_can_wait_for_epoll_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = waits_of(monkeypatch)
    monkeypatch.setattr(module, "_DESCRIPTORS_MAX", 0)
    run(asyncio.sleep(0.001))
    assert waits == []
