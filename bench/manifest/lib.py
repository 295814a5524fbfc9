"""The benchmarks' handlers: they say when they started, or fail on purpose."""

from __future__ import annotations

import time

from streams.handler_api import Event, Retryable


async def note_start(_event: Event) -> dict[str, int]:
    """Say when this handler started, on the clock that all processes of a machine share."""
    return {"started_ns": time.monotonic_ns()}


async def fail_until(event: Event) -> dict[str, int]:
    """Ask to be tried again at the time that the event names, on that same clock."""
    left_ms = event.payload["due_ms"] - time.monotonic_ns() // 1_000_000
    if left_ms > 0:
        message = "not yet"
        raise Retryable(message, after_ms=left_ms)
    return {"started_ns": time.monotonic_ns()}


async def fail(_event: Event) -> None:
    """Fail."""
    message = "it always fails"
    raise RuntimeError(message)
