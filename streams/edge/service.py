"""What the composition root knows of an edge: it starts, it stops, and it can fail.

Services are made inside the running event loop that they live in, so that `failed` exists from the
beginning.  Several of them share one loop.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["EdgeService"]


class EdgeService(Protocol):
    """A part of a role that talks to the world."""

    @property
    def name(self) -> str:
        """The service's name, as logs and metrics spell it."""
        ...

    @property
    def failed(self) -> asyncio.Future[None]:
        """Stays pending in a healthy service; an exception set on it ends the process non-zero."""
        ...

    async def start(self) -> None:
        """Return when the service works.  Raises a HarnError when it cannot."""
        ...

    async def stop(self) -> None:
        """Finish or give back what is under way, within `settings.drain_ms`; idempotent."""
        ...
