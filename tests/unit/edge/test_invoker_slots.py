from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.edge.executors.slots import Slots


def fill(slots: Slots[str], trigger: str, count: int) -> int:
    """Offer `count` items of a trigger; return how many started."""
    return sum(slots.offer(trigger, f"{trigger}{n}") for n in range(count))


def test_one_trigger_alone_gets_every_slot() -> None:
    slots: Slots[str] = Slots(64)
    assert fill(slots, "a", 100) == 64
    assert slots.running == 64


@pytest.mark.parametrize(("triggers", "free"), [(1, 16), (2, 4), (3, 1)])
def test_slow_triggers_leave_slots_for_one_more(triggers: int, free: int) -> None:
    slots: Slots[str] = Slots(64)
    slots.offer("seen before", "x")
    slots.ended("seen before")
    for n in range(triggers):
        fill(slots, f"slow{n}", 100)
    assert 64 - slots.running == free
    assert slots.offer("fast", "x")


def test_two_slow_triggers_come_to_equal_shares() -> None:
    slots: Slots[str] = Slots(64)
    running = {"a": fill(slots, "a", 1_000), "b": fill(slots, "b", 1_000)}
    for _ in range(200):  # handlers end, now of one trigger, now of the other
        for trigger in "ab":
            if running[trigger]:
                running[trigger] -= 1
                slots.ended(trigger)
            while (item := slots.next()) is not None:
                running[item[0]] += 1
    assert 26 <= running["a"] <= 29
    assert 26 <= running["b"] <= 29


def test_a_trigger_that_runs_nothing_starts_as_long_as_a_slot_is_free() -> None:
    slots: Slots[str] = Slots(3)
    assert [slots.offer(trigger, "x") for trigger in "abcd"] == [True, True, True, False]


def test_a_single_slot_serves_triggers_in_turn() -> None:
    slots: Slots[str] = Slots(1)
    assert slots.offer("a", "a0")
    for item in ("a1", "a2", "b1", "c1"):
        assert not slots.offer(item[0], item)
    order: list[str] = []
    slots.ended("a")
    while (item := slots.next()) is not None:
        order.append(item)
        assert slots.next() is None
        slots.ended(item[0])
    assert order == ["a1", "b1", "c1", "a2"]


def test_what_is_withdrawn_never_starts() -> None:
    slots: Slots[str] = Slots(1)
    for item in ("a0", "a1", "b1"):
        slots.offer(item[0], item)
    slots.withdraw({"a1"})
    slots.ended("a")
    assert slots.next() == "b1"
    slots.ended("b")
    assert slots.next() is None


def test_what_ends_while_it_starts_makes_room_for_the_next() -> None:
    """However much it is: nothing is nested."""
    slots: Slots[int] = Slots(1)
    slots.offer("a", 0)
    items = list(range(1, 5_000))
    assert not any(slots.offer("a", item) for item in items)
    order: list[int] = []

    def start(item: int) -> None:
        order.append(item)
        slots.ended("a")
        slots.fill(start)

    slots.fill(start)
    assert order == []
    slots.ended("a")
    slots.fill(start)
    assert order == items
    assert slots.running == 0


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=80),
)
def test_the_bound_holds_the_order_of_a_trigger_holds_and_nothing_waits_in_vain(
    slots_max: int, steps: list[tuple[str, bool]]
) -> None:
    slots: Slots[int] = Slots(slots_max)
    running: Counter[str] = Counter()
    offered: dict[str, list[int]] = {trigger: [] for trigger in "abc"}
    started: dict[str, list[int]] = {trigger: [] for trigger in "abc"}

    def start(item: int) -> None:
        trigger = "abc"[item % 3]
        running[trigger] += 1
        started[trigger].append(item)

    for index, (trigger, offers) in enumerate(steps):
        if offers:
            item = index * 3 + "abc".index(trigger)
            offered[trigger].append(item)
            if slots.offer(trigger, item):
                start(item)
        elif running[trigger]:
            running[trigger] -= 1
            slots.ended(trigger)
            slots.fill(start)
        assert slots.running == running.total() <= slots_max
        seen = [each for each in "abc" if offered[each]]
        free = slots_max - running.total()
        for each in seen:
            assert started[each] == offered[each][: len(started[each])]
            if len(started[each]) < len(offered[each]):
                share = 3 * free if len(seen) > 1 else running[each] + free
                assert running[each] >= share
