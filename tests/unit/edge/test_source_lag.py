"""What a source's lag is made of: the group's places and the ends that came with fetches."""

from collections.abc import Mapping
from typing import Any, cast

from confluent_kafka import Consumer, TopicPartition

from streams.edge.sources.lag import SourceLag


class Ends(dict[tuple[str, int], int]):
    """A consumer that knows ends; -1001 is what the client says before the first fetch."""

    def get_watermark_offsets(self, place: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached, "nothing is asked of the broker"
        return 0, self.get((place.topic, place.partition), -1001)


class Told(list[tuple[str, dict[str, int]]]):
    def stands(self, trigger_id: str, lags: Mapping[str, int]) -> None:
        self.append((trigger_id, dict(lags)))


class Clock:
    """Seconds, moved by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def watching(ends: Ends) -> tuple[SourceLag, Told, Clock]:
    told, clock = Told(), Clock()
    found = SourceLag("orders", told, clock)
    found.watch(cast("Consumer", cast("Any", ends)))
    return found, told, clock


def test_partitions_of_a_topic_are_added_up_and_unknown_ends_left_out() -> None:
    found, told, _ = watching(Ends({("eu", 0): 10, ("eu", 1): 5, ("us", 0): 7}))
    found.stand({("eu", 0): 4, ("eu", 1): 9, ("eu", 2): 0, ("us", 0): 7, ("ap", 0): 0})
    found.look()
    assert told == [("orders", {"eu": 6, "us": 0})]


def test_a_commit_moves_the_place_and_a_partition_that_left_counts_no_more() -> None:
    found, told, clock = watching(Ends({("eu", 0): 10, ("eu", 1): 10}))
    found.stand({("eu", 0): 0, ("eu", 1): 0})
    found.look()
    found.look()
    assert len(told) == 1, "once a second"
    found.stand({("eu", 0): 9})
    clock.now_s += 1
    found.look()
    found.leave({("eu", 1), ("eu", 7)})
    clock.now_s += 1
    found.look()
    assert [lags["eu"] for _, lags in told] == [20, 11, 1]


def test_what_is_not_read_any_more_is_taken_back() -> None:
    found, told, clock = watching(Ends({("eu", 0): 10}))
    found.stand({("eu", 0): 0})
    found.end()
    clock.now_s += 1
    found.look()
    assert told == [("orders", {})]
