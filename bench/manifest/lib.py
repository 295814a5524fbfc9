"""The benchmark's handler: says when it started, and does nothing else."""

from __future__ import annotations

import time

from streams.handler_api import Event


async def note_start(_event: Event) -> dict[str, int]:
    """Say when this handler started, on the clock that all processes of a machine share."""
    return {"started_ns": time.monotonic_ns()}
