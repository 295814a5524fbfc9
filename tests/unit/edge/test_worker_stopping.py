"""How a worker ends: when it is told to, and when nothing is left to do."""

from __future__ import annotations

import asyncio

from streams.handler_api import Context, Event
from tests.support.virtual_time import virtual_time
from tests.support.worker_edge import WorkerRig, body_of, settle, trigger
from tests.support.worker_handlers import rig


@virtual_time
async def test_stopping_releases_what_waits_and_lets_what_runs_end() -> None:
    async def clean_up(_event: Event, context: Context) -> str:
        return f"saw {await context.cancelled}"

    worker = await WorkerRig(
        trigger("clean_up", "clean_up"), functions={"clean_up": clean_up}, concurrency=1
    ).start()
    worker.grant((1, body_of("clean_up", 1)), (2, body_of("clean_up", 2)))
    await settle()
    await worker.worker.stop()
    assert worker.released == ["2.1"]
    assert worker.acked == ["1.1"]
    assert worker.responses["1.1"]["result"] == '"saw shutdown"'
    assert worker.heartbeat["draining"] is True
    assert worker.heartbeat["capacity"] == 0
    assert worker.listed == []
    assert worker.deliveries.stopped


@virtual_time
async def test_what_does_not_end_while_stopping_is_cut_off_and_released() -> None:
    worker = await rig("never", drain_ms=5_000).start()
    worker.grant((1, body_of("never", 1)))
    await settle()
    began_s = asyncio.get_running_loop().time()
    await worker.worker.stop()
    assert 5 <= asyncio.get_running_loop().time() - began_s < 8
    assert worker.responses["1.1"]["outcome"] == "interrupted"
    assert worker.released == ["1.1"]
    assert worker.acked == []


@virtual_time
async def test_a_grant_that_comes_while_stopping_is_released() -> None:
    worker = await rig("never", drain_ms=5_000).start()
    worker.grant((1, body_of("never", 1)))
    await settle()
    stopping = asyncio.ensure_future(worker.worker.stop())
    await settle()
    worker.grant((2, body_of("never", 2)))
    await stopping
    assert "2.1" in worker.released
    assert "2.1" not in worker.responses


@virtual_time
async def test_once_ends_when_nothing_is_ready_after_all_was_done() -> None:
    worker = await rig("answer", "explode", once=True).start()
    assert worker.heartbeat["once"] is True
    worker.grant((1, body_of("answer", 1)), (2, body_of("explode", 2)))
    worker.nothing_ready(1)  # said before these were done: it says nothing of them
    await asyncio.sleep(0.5)
    worker.nothing_ready(1)  # the same, and late
    await settle()
    assert not worker.worker.emptied.done()
    worker.nothing_ready(worker.heartbeat["seq"])
    await asyncio.wait_for(worker.worker.emptied, 1)
    assert worker.counts.settlements == {True: 1, False: 1}


@virtual_time
async def test_once_on_an_empty_queue_ends_at_the_first_word() -> None:
    worker = await rig("answer", once=True, queue_keys=("a", "b")).start()
    worker.nothing_ready(1, "a")
    await settle()
    assert not worker.worker.emptied.done(), "one of two queues says nothing of the other"
    worker.nothing_ready(1, "b")
    await asyncio.wait_for(worker.worker.emptied, 1)
