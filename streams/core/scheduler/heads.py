"""Which of many names has the least value, where values change and names come and go.

Each name stands in the heap with a value that is at most its own; it is corrected when it comes to
the top and somebody asks for it.  So a value that grows costs nothing, one that falls is offered
again, and a name that leaves is forgotten when it comes up, or when half of the heap has left.

Source: SEMANTICS 6.3, 6.4 step 2.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

_STALE_ALLOWED: Final = 1_024
"""Entries besides twice as many as there are names, at most."""


class Heads:
    """Names by a value that `current` knows; None there means that the name is out."""

    __slots__ = ("_bound", "_current", "_heap", "_size_max")

    def __init__(self, current: Callable[[str], int | None]) -> None:
        self._current = current
        self._heap: list[tuple[int, str]] = []
        self._bound: dict[str, int] = {}
        self._size_max = _STALE_ALLOWED

    def __len__(self) -> int:
        """Return how many entries there are, those that no name needs any more included."""
        return len(self._heap)

    def offer(self, name: str, value: int, /) -> None:
        """A name's value is `value` now; only a smaller one than is known makes a difference."""
        known = self._bound.get(name)
        if known is None or value < known:
            self._bound[name] = value
            heapq.heappush(self._heap, (value, name))
            if len(self._heap) > self._size_max:
                self._sweep()

    def _sweep(self) -> None:
        """Keep one entry for each name that is still in."""
        current = self._current
        found = ((name, current(name)) for name in self._bound)
        self._bound = {name: value for name, value in found if value is not None}
        self._heap = [(value, name) for name, value in self._bound.items()]
        heapq.heapify(self._heap)
        self._size_max = 2 * len(self._heap) + _STALE_ALLOWED

    def may_reach(self, value: int, /) -> bool:
        """Whether some name's value may be `value` or less; costs nothing where none is near."""
        heap = self._heap
        return bool(heap) and heap[0][0] <= value

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
