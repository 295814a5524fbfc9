"""Which of many names has the least value, where values change and names come and go.

Each name stands in the heap with a value that is at most its own; it is corrected when it comes to
the top.  So a value that grows costs nothing, one that falls is offered again, and a name that
leaves is forgotten when it comes up.

Source: SEMANTICS 6.3, 6.4 step 2.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

_STALE_ALLOWED: Final = 1_024


class Heads:
    """Names by a value that `current` knows; None there means that the name is out."""

    __slots__ = ("_bound", "_current", "_heap")

    def __init__(self, current: Callable[[str], int | None]) -> None:
        self._current = current
        self._heap: list[tuple[int, str]] = []
        self._bound: dict[str, int] = {}

    def offer(self, name: str, value: int, /) -> None:
        """A name's value is `value` now; only a smaller one than is known makes a difference."""
        known = self._bound.get(name)
        if known is None or value < known:
            self._bound[name] = value
            heapq.heappush(self._heap, (value, name))
            if len(self._heap) > 2 * len(self._bound) + _STALE_ALLOWED:
                self._heap = [(bound, each) for each, bound in self._bound.items()]
                heapq.heapify(self._heap)

    def first(self) -> tuple[int, str] | None:
        """Return the least value and its name, the lesser name of equals; None without names."""
        heap, bound, current = self._heap, self._bound, self._current
        while heap:
            value, name = heap[0]
            if bound.get(name) != value:
                heapq.heappop(heap)
                continue
            now = current(name)
            if now is None:
                heapq.heappop(heap)
                del bound[name]
            elif now > value:
                heapq.heapreplace(heap, (now, name))
                bound[name] = now
            else:
                return heap[0]
        return None
