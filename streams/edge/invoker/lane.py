"""One partition of intents under one ownership: its offsets, and what waits there.

Handlers of different triggers start out of order, so an intent can be overtaken: a later one of
the partition was begun before it.  It matters when the partition moves to another member, which
begins after the last begun offset.  What still waits behind that offset is simply fetched again
there; what was overtaken is not, and needs a word of ours.

Source: DESIGN "An invocation".
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from streams.edge.invoker.ledger import OffsetLedger

__all__ = ["Lane"]

T = TypeVar("T")


class Lane(Generic[T]):
    """What one member knows of a partition while it owns it."""

    def __init__(self) -> None:
        self.ledger = OffsetLedger()
        self._waiting: deque[tuple[int, T]] = deque()  # behind the last begun offset
        self._last_begun: int | None = None

    @property
    def settled(self) -> bool:
        """Return whether everything that was begun or overtaken has settled."""
        first_open = self.ledger.first_open
        return first_open is None or self._last_begun is None or first_open > self._last_begun

    def waits(self, offset: int, item: T) -> None:
        """Note a received offset whose item has not begun."""
        assert self._last_begun is None or offset > self._last_begun, "offsets grow"
        self._waiting.append((offset, item))

    def begins(self, offset: int) -> list[T]:
        """Note that an offset has begun; return the items that are overtaken by it."""
        if self._last_begun is not None and offset <= self._last_begun:
            return []
        self._last_begun = offset
        overtaken: list[T] = []
        while self._waiting and self._waiting[0][0] <= offset:
            waited, item = self._waiting.popleft()
            if waited < offset:
                overtaken.append(item)
        return overtaken

    def give_up(self) -> list[T]:
        """Return the items that the next owner fetches again: none of them has begun."""
        items = [item for _, item in self._waiting]
        self._waiting.clear()
        return items
