"""Handlers for tests of the invoker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from streams.handler_api import Context, Event


async def answer(event: Event, context: Context) -> Any:
    return {"action": event.payload["action"], "attempt": context.attempt_id}


async def never(_event: Event, _context: Context) -> None:
    await asyncio.get_running_loop().create_future()


def sleeper(seconds: float) -> Callable[[Event, Context], Awaitable[str]]:
    async def sleep(_event: Event, _context: Context) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    return sleep


def raising(error: BaseException) -> Callable[[Event, Context], Awaitable[None]]:
    async def handler(_event: Event, _context: Context) -> None:
        raise error

    return handler
