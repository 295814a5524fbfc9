"""A fairness key of a queue: its ready jobs by rank and age, its credit and its counts.

Invariants: `ready` is the number of its jobs that may be claimed; `credit` is settled up to round
`round`; a place is in `gone` when it was taken out of the middle and still stands in a heap.

Source: SEMANTICS 5.3, 6.4.
"""

from __future__ import annotations

import heapq

from streams.core.scheduler.job_id import enqueued_ms
from streams.core.scheduler.policy import PROMOTED_AFTER_MS


class Key:
    """See the module."""

    __slots__ = (
        "_gone",
        "_ranks",
        "capped_at",
        "credit",
        "deferred",
        "eligible",
        "in_flight",
        "name",
        "promotions",
        "ready",
        "round",
        "selected",
        "served_at_ms",
        "weight",
    )

    def __init__(self, name: str, weight: int) -> None:
        self.name = name
        self.weight = weight
        self.credit = self.round = 0
        self.selected = self.deferred = self.promotions = self.served_at_ms = 0
        self.ready = self.in_flight = 0
        self.capped_at: int | None = None
        self.eligible = False
        self._ranks: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._gone: set[int] | None = None

    def push(self, place: int, rank: int, /) -> None:
        """A job may be claimed."""
        self.ready += 1
        if self._gone and place in self._gone:
            self._gone.discard(place)  # it still stands in its heap
        else:
            heapq.heappush(self._ranks[rank], place)

    def load(self, place: int, rank: int, /) -> None:
        """A job may be claimed, at load: `order` follows when all are there."""
        self.ready += 1
        self._ranks[rank].append(place)

    def order(self) -> None:
        """Make heaps of what was loaded."""
        for heap in self._ranks:
            heap.sort()

    def take_out(self, place: int, /) -> None:
        """A job that may be claimed may not be any more, wherever it stands."""
        self.ready -= 1
        if self._gone is None:
            self._gone = set()
        self._gone.add(place)

    def head(self, rank: int, /) -> int | None:
        """Return the place of the oldest ready job of a rank, or None."""
        heap, gone = self._ranks[rank], self._gone
        if gone:
            while heap and heap[0] in gone:
                gone.discard(heapq.heappop(heap))
        return heap[0] if heap else None

    def oldest(self) -> int | None:
        """Return the place of the oldest ready job of any rank, or None."""
        if self._gone:
            self._clear_heads()
        high, normal, low = self._ranks
        if normal and not high and not low:  # nearly all keys, and a summary asks each of them
            return normal[0]
        heads = [heap[0] for heap in self._ranks if heap]
        return min(heads) if heads else None

    def first_rank(self, now_ms: int, /) -> int:
        """Return the rank whose oldest job is to be claimed first; there is a ready job."""
        if self._gone:
            self._clear_heads()
        high, normal, _ = self._ranks
        if normal and (
            not high
            or (normal[0] < high[0] and enqueued_ms(normal[0]) + PROMOTED_AFTER_MS <= now_ms)
        ):
            return 1
        return 0 if high else 2

    def pop(self, rank: int, /) -> int:
        """Take the oldest ready job of a rank, which is there."""
        self.ready -= 1
        if self._gone:
            self._clear_heads()
        return heapq.heappop(self._ranks[rank])

    def _clear_heads(self) -> None:
        """Take out of the heaps what stands before the first job that may be claimed."""
        for rank in (0, 1, 2):
            self.head(rank)

    def rank_of_oldest(self) -> int:
        """Return the rank that the oldest ready job has; there is one."""
        oldest = self.oldest()
        return next(rank for rank in (0, 1, 2) if self.head(rank) == oldest)

    def take(self, most: int, /) -> list[int]:
        """Take ready jobs, the oldest first, and at most so many; return their places."""
        places: list[int] = []
        while self.ready and len(places) < most:
            places.append(self.pop(self.rank_of_oldest()))
        return places
