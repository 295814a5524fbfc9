"""The handlers of the queue benchmarks: they say when they started; one takes five milliseconds."""

from __future__ import annotations

import asyncio
import time

from streams.handler_api import Event


async def note_start(_event: Event) -> int:
    """Say when this handler started, on the clock that all processes of a machine share, ns."""
    return time.monotonic_ns()


async def sleep(_event: Event) -> int:
    """The same, and take as long as the jobs of the comparison do."""
    started_ns = time.monotonic_ns()
    await asyncio.sleep(0.005)
    return started_ns
