"""Waiting for something that another thread or process brings about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_LOOK_EVERY_S = 0.02

PATIENCE_S = 120.0
"""What anything may take that a test waits for: a limit for what never comes, on a slow machine."""


async def eventually(holds: Callable[[], bool], what: str, *, within_s: float = PATIENCE_S) -> None:
    """Return as soon as `holds`; fail, naming `what`, when it does not come."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not holds():
        assert loop.time() < deadline_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(_LOOK_EVERY_S)


async def eventually_async(
    holds: Callable[[], Awaitable[bool]], what: str, *, within_s: float = PATIENCE_S
) -> None:
    """Return as soon as `holds`, which is awaited each time; fail when it does not come."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not await holds():
        assert loop.time() < deadline_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(_LOOK_EVERY_S)
