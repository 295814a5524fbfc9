"""An event loop whose timers end when they should: within 0.1 ms, not at the next millisecond.

epoll takes whole milliseconds, so that asyncio rounds every wait up: a handler that waits for 5 ms
takes 6.  `select` takes microseconds, and can wait for epoll's own descriptor.  Elsewhere than on
Linux selectors are exact by themselves.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
from typing import Any

__all__ = ["exact_loop"]

_DESCRIPTORS_MAX = 1_024
"""What `select` can wait for are descriptors below this."""

if sys.platform == "linux":

    class _ExactSelector(selectors.EpollSelector):
        """Waits for a time by `select`, and asks epoll what has come."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
            """See `BaseSelector.select`."""
            own = self.fileno()
            if timeout is not None and timeout > 0 and own < _DESCRIPTORS_MAX:
                select.select((own,), (), (), timeout)
                timeout = 0
            return super().select(timeout)


def exact_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop; it is the caller's to close."""
    if sys.platform == "linux":
        return asyncio.SelectorEventLoop(_ExactSelector())
    return asyncio.new_event_loop()
