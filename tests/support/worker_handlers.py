"""Handlers for tests of the worker, and a worker that has them."""

from __future__ import annotations

import asyncio
from typing import Any

from streams.handler_api import Context, Event
from tests.support.worker_edge import TTL_MS, WorkerRig, trigger

TTL_S = TTL_MS / 1_000


async def answer(event: Event, context: Context) -> Any:
    return {"payload": event.payload, "key": context.attempt_id, "attempt": context.attempt}


async def explode(_event: Event) -> None:
    raise RuntimeError("no")


async def never(_event: Event) -> None:
    await asyncio.get_running_loop().create_future()


async def sleep_an_hour(_event: Event) -> str:
    await asyncio.sleep(3_600)
    return "slept"


async def urgent(event: Event) -> bool:
    return bool(event.payload["urgent"])


async def emit(_event: Event, context: Context) -> None:
    context.emit("news", {})


FUNCTIONS = {
    "answer": answer,
    "explode": explode,
    "never": never,
    "sleep_an_hour": sleep_an_hour,
    "urgent": urgent,
    "emit": emit,
}


def rig(*names: str, **options: Any) -> WorkerRig:
    """A worker with one trigger for each handler, of its name."""
    triggers = [trigger(name, name) for name in names]
    return WorkerRig(*triggers, functions=FUNCTIONS, **options)
