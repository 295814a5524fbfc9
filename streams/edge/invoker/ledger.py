"""Which offset of a partition may be committed: the one before which everything has settled.

Intents settle in any order, since handlers end in any order; the group's offset may only pass an
intent whose outcome, or whose `running` record, is in the log.  A ledger lives for one ownership of
a partition: whoever gets the partition back starts another.

Invariants: every received offset below `next_offset` is settled; `next_offset` never falls; memory
is bounded by the offsets that are received and not yet below it.
"""

from __future__ import annotations

from collections import deque

__all__ = ["OffsetLedger"]


class OffsetLedger:
    """The offsets of one partition under one ownership."""

    def __init__(self) -> None:
        self._open: deque[int] = deque()  # received and not below next_offset, growing
        self._settled: set[int] = set()  # of those, the settled ones
        self._next_offset: int | None = None
        self._committed: int | None = None

    @property
    def next_offset(self) -> int | None:
        """Return where the group would resume; None while nothing has settled."""
        return self._next_offset

    @property
    def first_open(self) -> int | None:
        """Return the first received offset that has not settled; None when all have."""
        return self._open[0] if self._open else None

    def received(self, offset: int) -> None:
        """Note an offset; they come in growing order, not always without gaps.

        Raises ValueError when the offset is not above the last one.
        """
        last = self._open[-1] if self._open else (self._next_offset or 0) - 1
        if offset <= last:
            raise ValueError(f"offset {offset} received after {last}, expected a larger one")
        self._open.append(offset)

    def settled(self, offset: int) -> None:
        """Note that a received offset needs no other owner; saying so twice changes nothing."""
        if self._next_offset is not None and offset < self._next_offset:
            return
        self._settled.add(offset)
        while self._open and self._open[0] in self._settled:
            first = self._open.popleft()
            self._settled.remove(first)
            self._next_offset = first + 1

    def take_commit(self) -> int | None:
        """Return the offset to commit when it has grown since it was last taken, else None."""
        if self._next_offset == self._committed:
            return None
        self._committed = self._next_offset
        return self._next_offset

    def commit_failed(self) -> None:
        """Make the next `take_commit` return the offset again."""
        self._committed = None
