"""A worker that reads its manifest anew, and one whose event loop is held up."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streams.edge.executors import loop_watch
from streams.edge.worker.consumer import Consumer
from streams.edge.worker.reload import Reloader
from streams.errors import BrokerError, InvokerStuck, ManifestError
from streams.handler_api import Event
from tests.support.worker_edge import WorkerRig, body_of, consumer_of, trigger

TICK_S = 0.01


def consumer(functions: dict[str, Callable[..., Any]]) -> Consumer:
    return consumer_of(functions, [trigger(name, name) for name in functions])


async def before(_event: Event) -> str:
    return "before"


async def after(_event: Event) -> str:
    return "after"


async def rig(**functions: Callable[..., Any]) -> WorkerRig:
    triggers = [trigger(name, name) for name in functions]
    return await WorkerRig(*triggers, functions=functions).start()


async def answered(worker: WorkerRig, count: int) -> list[str]:
    """Results and errors of the first responses, in order."""
    while len(worker.values("job_response")) < count:
        await worker.log.wait_for(len(worker.log.records) + 1)
    return [each["result"] or each["error"] for each in worker.values("job_response")]


async def test_jobs_that_begin_after_it_go_by_the_manifest_that_was_read() -> None:
    ends = asyncio.Event()

    async def slow(_event: Event) -> str:
        await ends.wait()
        return "as it began"

    worker = await rig(slow=slow, one=before)
    worker.grant((1, body_of("slow", 1)), (2, body_of("one", 2)))
    assert await answered(worker, 1) == ['"before"']
    await worker.worker.adopt(consumer({"one": after, "two": after}))
    worker.grant((3, body_of("one", 3)), fence=1)
    ends.set()
    worker.grant((4, body_of("slow", 4)), (5, body_of("two", 5)))
    results = await answered(worker, 5)
    assert sorted(results[1:])[:3] == ['"after"', '"after"', '"as it began"']
    assert "no trigger of that id" in sorted(results[1:])[3]
    await worker.worker.stop()


async def test_a_manifest_that_is_read_is_registered_before_anything_goes_by_it() -> None:
    worker = await rig(one=before)
    worker.log.failures.append(BrokerError("away", retryable=True))
    with pytest.raises(BrokerError, match="away"):
        await worker.worker.adopt(consumer({"one": after}))
    worker.grant((1, body_of("one", 1)))
    assert await answered(worker, 1) == ['"before"']
    await worker.worker.adopt(consumer({"one": after}))
    assert len(worker.values("consumer_registered")) == 2
    await worker.worker.stop()


class Adopted:
    """Notes what it is told to go by."""

    def __init__(self) -> None:
        self.consumers: asyncio.Queue[Consumer] = asyncio.Queue()

    async def adopt(self, consumer: Consumer) -> None:
        await self.consumers.put(consumer)


async def test_asking_reads_the_manifest_and_a_bad_one_is_logged_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found: list[Consumer | ManifestError] = [
        ManifestError("harn.toml: handler 'x' is missing"),
        consumer({"one": after}),
    ]
    threads: list[threading.Thread] = []

    def load() -> Consumer:
        threads.append(threading.current_thread())
        now = found.pop(0)
        if isinstance(now, ManifestError):
            loop.call_soon_threadsafe(reloader.ask)  # while this reading is under way
            raise now
        return now

    loop, adopted = asyncio.get_running_loop(), Adopted()
    reloader = Reloader(load, adopted)
    reloader.start()
    reloader.ask()
    got = await asyncio.wait_for(adopted.consumers.get(), 30)
    await reloader.stop()
    assert got.resolve("one") is not None
    assert found == []
    assert threading.main_thread() not in threads, "importing must not hold up renewals"
    [line] = [each for each in caplog.records if each.message == "worker_manifest_not_reloaded"]
    assert line.levelno == logging.ERROR
    assert "handler 'x' is missing" in line.__dict__["reason"]


async def test_a_handler_that_holds_up_the_loop_is_named_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_watch, "TICK_S", TICK_S)
    monkeypatch.setattr(loop_watch, "TOLD_AFTER_S", 2 * TICK_S)

    async def hog(_event: Event) -> str:
        assert worker.counts.blocked.wait(60), "the watch has told of it"
        return "done"

    worker = await rig(hog=hog)
    worker.grant((1, body_of("hog", 1)))
    assert await answered(worker, 1) == ['"done"']
    await worker.worker.stop()
    line = next(each for each in caplog.records if each.message == "handler_blocks_loop")
    assert line.__dict__["attempt_id"] == "worker.triage/1"


async def test_a_loop_that_stands_still_for_longer_than_claims_last_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_watch, "TICK_S", TICK_S)
    monkeypatch.setattr(loop_watch, "LIMIT_S_MIN", 5 * TICK_S)
    ended = threading.Event()
    codes: list[int] = []

    def exit_now(code: int) -> None:
        codes.append(code)
        ended.set()

    async def hog(_event: Event) -> None:
        assert ended.wait(60), "the process ends"

    worker = WorkerRig(trigger("hog", "hog"), functions={"hog": hog}, exit_now=exit_now, ttl_ms=100)
    await worker.start()
    worker.grant((1, body_of("hog", 1)))
    await answered(worker, 1)
    await worker.worker.stop()
    assert codes == [InvokerStuck.exit_code]
    [line] = [each for each in caplog.records if each.message == "worker_stuck"]
    assert line.__dict__["attempt_id"] == "worker.triage/1"
