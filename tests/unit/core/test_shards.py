"""Shards of one queue live apart, where there are partitions enough, and stay where they are."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from streams.core.placement import partition_of
from streams.core.ready_jobs import SHARDS_MAX
from streams.core.shards import mailbox_keys, numbers_of, spread
from streams.core.wire import QueueConfigured

QUEUES = st.text("abcdefghij-.", min_size=1, max_size=20)


def configured(shards: int, *numbers: int) -> QueueConfigured:
    return {
        "queue": "bulk",
        "shards": shards,
        "shard_by": "tenant",
        "numbers": list(numbers),
        "configured_at": "2026-01-01T00:00:00.000Z",
        "configured_by": "test",
    }


@given(queue=QUEUES, shards=st.integers(1, SHARDS_MAX), partitions=st.integers(1, 100))
def test_no_partition_has_two_more_shards_than_another(
    queue: str, shards: int, partitions: int
) -> None:
    numbers = spread(queue, shards, partitions)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == shards
    places = Counter(partition_of(f"{queue}#{each}".encode(), partitions) for each in numbers)
    assert len(places) == min(shards, partitions)
    assert max(places.values()) == -(-shards // partitions)
    assert spread(queue, shards, partitions) == numbers
    assert spread(queue, shards + 1, partitions)[:shards] == numbers


def test_a_queue_that_was_created_without_numbers_stays_where_it_is() -> None:
    assert mailbox_keys("bulk", None) == ["bulk"]
    assert mailbox_keys("bulk", configured(1)) == ["bulk"]
    assert mailbox_keys("bulk", configured(3)) == ["bulk#0", "bulk#1", "bulk#2"]
    assert mailbox_keys("bulk", configured(3, 0, 2, 7)) == ["bulk#0", "bulk#2", "bulk#7"]


def test_numbers_that_cannot_be_are_as_if_unsaid() -> None:
    assert numbers_of(3, [1, 4, 9]) == (1, 4, 9)
    for said in ([], [0, 1], [0, 1, 1], [0, 1, 2, 3], [-1, 0, 1]):
        assert numbers_of(3, said) == (0, 1, 2)
