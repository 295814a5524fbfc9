"""The agents of the turn benchmarks: they do nothing, say what they know, or take their time."""

from __future__ import annotations

import asyncio
import time

from streams.agent_api import Turn

_KNOWN: set[str] = set()
"""The sessions that this process has had a turn of: what a worker would keep warm for them."""


async def nothing(_turn: Turn) -> None:
    """End at once."""


async def note_start(_turn: Turn) -> str:
    """Say when this began, on the clock that all processes of a machine share, ns."""
    return str(time.monotonic_ns())


async def remember(turn: Turn) -> str:
    """Say whether this process has had a turn of the session before."""
    known = turn.session_id in _KNOWN
    _KNOWN.add(turn.session_id)
    return "known" if known else "new"


async def stay(turn: Turn) -> None:
    """Take as many seconds as the task says."""
    await asyncio.sleep(float(turn.objective))
