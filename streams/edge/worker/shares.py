"""How the room of a worker is divided among the partitions of the mailbox that have queues of it.

A partition knows nothing of the others: it grants what it was offered, and each place that comes
free there again.  Where a worker has room for all, each partition is offered an even part.  Where
it has not, a partition whose jobs wait in vain says so, with the weight of what waits, and then:

    what waits: partitions A (3) and B (1), each with jobs that have no room here
    places to divide: those that are free, and those that A and B have
    each gets its part by weight, at least one; where there are fewer places than partitions,
    those have one that were granted something longest ago
    more than a partition has: offered, as far as places are free or are about to be
    fewer: taken back, as its jobs end

So a queue with a backlog keeps no other one waiting, and nothing is kept free for queues that are
empty.

Invariants: never is more offered than is free, or about to be; what is taken back is no more than a
partition has.

Source: DESIGN "Topics" (slots are divided between shards by active weight), "A job".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["Shares"]


class Shares:
    """Divides places among partitions.

    Args:    kept_s: how long it is believed that jobs wait in a partition that has said so.
    """

    def __init__(self, partitions: Sequence[int], kept_s: float) -> None:
        self._kept_s = kept_s
        self._waiting: dict[int, tuple[int, float]] = {}
        self._granted_s: dict[int, float] = {}
        self._turn = 0
        self.among(partitions)

    def among(self, partitions: Sequence[int]) -> None:
        """Divide among these from now on."""
        self._granted_s = {each: self._granted_s.get(each, float("-inf")) for each in partitions}

    @property
    def several(self) -> bool:
        """Whether there is anything to divide."""
        return len(self._granted_s) > 1

    def waiting(self, partition: int, weight: int, now_s: float) -> bool:
        """Note that jobs of this weight wait in a partition; return whether that is news."""
        known = self._waiting.get(partition)
        self._waiting[partition] = (max(weight, 1), now_s)
        return known is None or known[1] + self._kept_s < now_s

    def granted(self, partition: int, now_s: float) -> None:
        """Note that a partition has granted something."""
        if partition in self._granted_s:
            self._granted_s[partition] = now_s

    def waits(self, now_s: float) -> bool:
        """Whether jobs wait anywhere."""
        return any(said_s + self._kept_s >= now_s for _, said_s in self._waiting.values())

    def divide(
        self, now_s: float, *, free: int, ending: int, has: Mapping[int, int]
    ) -> dict[int, int]:
        """Return how many places more, or fewer, each partition shall have.

        Args:    free: places that no job has.  ending: those whose jobs are about to end.
                 has: places that each partition's jobs have; none where it is left out.
        """
        weights = {
            partition: weight
            for partition, (weight, said_s) in self._waiting.items()
            if said_s + self._kept_s >= now_s and partition in self._granted_s
        }
        if not weights:
            return self._even(free)
        order = sorted(weights, key=lambda each: (self._granted_s[each], each))
        total = free + sum(has.get(each, 0) for each in order)
        wanted = _by_weight(weights, order, total)
        shares = dict.fromkeys(self._granted_s, 0)
        room = free + ending
        for partition in order:
            more = min(wanted[partition] - has.get(partition, 0), room)
            shares[partition] = more
            room -= max(more, 0)
        return shares

    def _even(self, free: int) -> dict[int, int]:
        """What cannot be divided goes to another one each time."""
        partitions = list(self._granted_s)
        share, left = divmod(free, len(partitions))
        self._turn = (self._turn + left) % len(partitions)
        return {
            partition: share + ((place - self._turn) % len(partitions) < left)
            for place, partition in enumerate(partitions)
        }


def _by_weight(weights: Mapping[int, int], order: Sequence[int], total: int) -> dict[int, int]:
    """Divide places by weight, at least one each; who is first in order gets what is left over."""
    if total <= len(order):
        return {partition: int(place < total) for place, partition in enumerate(order)}
    whole = sum(weights.values())
    parts = {partition: max(1, total * weights[partition] // whole) for partition in order}
    left = total - sum(parts.values())
    while left < 0:  # some have one that weigh less: the largest parts give it
        largest = max(order, key=lambda each: parts[each])
        parts[largest] -= 1
        left += 1
    for partition in order[:left]:
        parts[partition] += 1
    return parts
