"""The numbers of a queue's shards: chosen so that each lives in a partition of its own.

    shard → number → mailbox key `queue#number` → its hash → partition

A key's hash decides the partition of everything that is said under it, by whoever says it.  So the
shards of a queue are spread by their numbers: of two numbers whose keys meet, one is passed over.
They are chosen once, when the queue is created, and stand in the catalog: a queue that was created
without them has 0, 1, 2, … and stays where it is.

Invariants: the numbers of a queue are distinct; no partition has two shards while another has none.

Source: DESIGN "Topics" (shards), law 4; ADR 16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

from streams.core.placement import partition_of
from streams.core.wire import QueueConfigured

__all__ = ["mailbox_key", "mailbox_keys", "numbers_of", "spread"]


def mailbox_key(queue: str, shard: int | None, /) -> str:
    """Return the key under which a queue, or the shard of a number, lives in the mailbox."""
    return queue if shard is None else f"{queue}#{shard}"


def spread(queue: str, shards: int, partitions: int, /) -> list[int]:
    """Return the numbers of a queue's shards in a mailbox of so many partitions, growing."""
    used: Counter[int] = Counter()
    numbers: list[int] = []
    for number in count():
        if len(numbers) == shards:
            break
        place = partition_of(mailbox_key(queue, number).encode(), partitions)
        if used[place] <= len(numbers) // partitions:
            used[place] += 1
            numbers.append(number)
    return numbers


def numbers_of(shards: int, said: Sequence[int], /) -> tuple[int, ...]:
    """Return the numbers of shards where the catalog says these; what cannot be is as if unsaid."""
    usable = len(said) == len(set(said)) == shards and all(number >= 0 for number in said)
    return tuple(said) if usable else tuple(range(shards))


def mailbox_keys(queue: str, configured: QueueConfigured | None, /) -> list[str]:
    """Return the keys under which a queue lives: its own, or one for each shard."""
    if configured is None or configured["shards"] == 1:
        return [mailbox_key(queue, None)]
    numbers = numbers_of(configured["shards"], configured["numbers"])
    return [mailbox_key(queue, number) for number in numbers]
