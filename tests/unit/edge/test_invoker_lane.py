from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.edge.invoker.lane import Lane


def lane_of(*offsets: int) -> Lane[str]:
    """Return a lane in which an item waits at each offset."""
    lane: Lane[str] = Lane()
    for offset in offsets:
        lane.ledger.received(offset)
        lane.waits(offset, f"item {offset}")
    return lane


def test_what_begins_in_order_overtakes_nothing() -> None:
    lane = lane_of(1, 2)
    assert lane.begins(1) == []
    assert lane.begins(2) == []
    assert lane.give_up() == []


def test_what_begins_early_overtakes_what_waits_before_it() -> None:
    lane = lane_of(1, 2, 3, 4)
    assert lane.begins(3) == ["item 1", "item 2"]
    assert lane.begins(1) == []
    assert lane.give_up() == ["item 4"]


def test_a_lane_is_settled_when_all_up_to_the_last_begun_offset_is() -> None:
    lane = lane_of(1, 2, 3)
    assert lane.settled
    lane.begins(2)
    lane.ledger.settled(2)
    assert not lane.settled
    lane.ledger.settled(1)
    assert lane.settled
    assert lane.ledger.next_offset == 3


@given(st.permutations(range(8)), st.integers(0, 8))
def test_everything_is_begun_overtaken_or_given_up_and_only_once(
    order: list[int], begun: int
) -> None:
    lane = lane_of(*range(8))
    overtaken: list[str] = []
    for offset in order[:begun]:
        overtaken += lane.begins(offset)
    last = max(order[:begun], default=-1)
    assert lane.give_up() == [f"item {offset}" for offset in range(last + 1, 8)]
    assert len(set(overtaken)) == len(overtaken)
    never_begun = {f"item {offset}" for offset in range(last)} - {
        f"item {offset}" for offset in order[:begun]
    }
    assert never_begun <= set(overtaken)
