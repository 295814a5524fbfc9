"""Lanes: sessions in parallel, their turns in order, offsets over what has finished."""

from __future__ import annotations

import pytest

from streams.core.turn.lanes import MAX_BEYOND_PREFIX, Lanes, Turn

URGENT, HIGH, NORMAL, LOW = range(4)


def lanes_of(*sessions: str, **bounds: int) -> Lanes:
    """A partition whose turns, from offset 0 on, are of these sessions."""
    lanes = Lanes(0, **bounds)
    for offset, session_id in enumerate(sessions):
        lanes.take(offset, session_id, NORMAL)
    return lanes


def start(lanes: Lanes, now_ms: int = 0) -> Turn:
    turn = lanes.best(now_ms)
    assert turn is not None
    lanes.start(turn)
    return turn


def order(lanes: Lanes) -> list[int]:
    """The offsets in which turns run when each is finished before the next one starts."""
    found: list[int] = []
    while (turn := lanes.best(0)) is not None:
        lanes.start(turn)
        lanes.finish(turn)
        found.append(turn.offset)
    return found


def test_a_session_runs_one_turn_at_a_time_and_others_go_on() -> None:
    lanes = lanes_of("a", "a", "b")

    first, second = start(lanes), start(lanes)

    assert [(turn.session_id, turn.offset) for turn in (first, second)] == [("a", 0), ("b", 2)]
    assert lanes.best(0) is None
    lanes.finish(first)
    assert start(lanes).offset == 1


def test_sessions_are_ordered_by_priority_then_arrival() -> None:
    lanes = Lanes(0)
    for offset, (session_id, bucket) in enumerate(
        [("a", LOW), ("b", NORMAL), ("c", URGENT), ("d", HIGH), ("e", URGENT), ("a", URGENT)]
    ):
        lanes.take(offset, session_id, bucket)

    assert order(lanes) == [2, 4, 3, 1, 0, 5]


def test_the_offset_moves_over_finished_turns_alone() -> None:
    lanes = lanes_of("a", "b", "c")
    first, second, third = start(lanes), start(lanes), start(lanes)

    lanes.finish(second)
    lanes.finish(third)
    assert (lanes.committable, lanes.beyond_prefix) == (0, 2)
    lanes.finish(first)
    assert (lanes.committable, lanes.beyond_prefix) == (3, 0)


def test_a_gap_in_the_log_is_passed_with_what_stands_before_it() -> None:
    lanes = Lanes(5)
    lanes.take(7, "a", NORMAL)
    assert (lanes.committable, lanes.next_offset) == (7, 8)

    lanes.pass_over(12)
    assert (lanes.committable, lanes.next_offset) == (7, 12)
    lanes.finish(start(lanes))
    assert lanes.committable == 12


def test_what_has_ended_before_is_passed_without_running() -> None:
    lanes = Lanes(0)
    lanes.take(0, "a", NORMAL, finished=True)
    assert (lanes.committable, lanes.held) == (1, 0)
    lanes.take(1, "b", NORMAL)
    lanes.take(2, "b", NORMAL, finished=True)

    assert (lanes.committable, lanes.beyond_prefix) == (1, 1)
    assert order(lanes) == [1]
    assert lanes.committable == 3


def test_a_long_turn_pauses_its_partition_once_enough_has_finished_past_it() -> None:
    lanes = Lanes(0)
    lanes.take(0, "long", NORMAL)
    start(lanes)
    finished = 0
    while lanes.wants_more:
        lanes.take(finished + 1, f"s{finished}", NORMAL)
        lanes.finish(start(lanes))
        finished += 1

    assert finished == lanes.beyond_prefix == MAX_BEYOND_PREFIX == 1_000
    assert lanes.committable == 0


def test_what_runs_counts_as_finished_past_the_first() -> None:
    lanes = lanes_of("a", "b", "c", "d", max_beyond_prefix=2)

    running = [start(lanes) for _ in range(3)]

    assert lanes.best(0) is None
    assert not lanes.wants_more
    for turn in running[1:]:
        lanes.finish(turn)
    assert (lanes.beyond_prefix, lanes.best(0)) == (2, None)
    lanes.finish(running[0])
    assert start(lanes).session_id == "d"


def test_a_turn_is_passed_over_by_others_no_more_often_than_the_bound() -> None:
    lanes = Lanes(0, max_beyond_prefix=3)
    lanes.take(0, "low", LOW)
    for offset in range(1, 10):
        if lanes.wants_more:
            lanes.take(offset, f"s{offset}", URGENT)

    assert order(lanes)[:4] == [1, 2, 3, 0]


def test_a_partition_holds_a_bounded_number_of_turns() -> None:
    lanes = lanes_of("a", "a", max_taken=2)

    assert not lanes.wants_more
    with pytest.raises(AssertionError):
        lanes.take(2, "b", NORMAL)
    lanes.finish(start(lanes))
    assert lanes.wants_more


def test_a_turn_that_waits_for_another_s_claim_holds_up_its_session_alone() -> None:
    lanes = lanes_of("a", "a", "b")
    lanes.give_back(start(lanes), not_before_ms=100)

    assert (lanes.due_ms(), lanes.committable) == (100, 0)
    lanes.finish(start(lanes))
    assert lanes.best(99) is None
    assert start(lanes, now_ms=100).offset == 0
    assert lanes.due_ms() is None


def test_a_turn_that_is_given_back_is_the_next_of_its_session() -> None:
    lanes = lanes_of("a", "a")
    lanes.give_back(start(lanes))

    assert order(lanes) == [0, 1]


def test_a_hand_over_takes_and_starts_nothing_and_says_what_runs() -> None:
    lanes = lanes_of("a", "b", "b")
    first, second = start(lanes), start(lanes)

    lanes.stop()

    assert lanes.stopped
    assert (lanes.wants_more, lanes.best(0)) == (False, None)
    assert lanes.running == (first, second)
    lanes.finish(first)
    lanes.give_back(second)
    assert lanes.running == ()
    assert lanes.best(0) is None
    assert lanes.committable == 1, "what waited or was given back is the next owner's"


def test_the_log_is_taken_in_its_order() -> None:
    lanes = lanes_of("a")

    with pytest.raises(AssertionError):
        lanes.take(0, "b", NORMAL)


def test_only_the_next_turn_of_a_session_starts_and_only_what_runs_ends() -> None:
    lanes = lanes_of("a", "a")
    first, second = Turn(NORMAL, 0, "a"), Turn(NORMAL, 1, "a")

    with pytest.raises(AssertionError):
        lanes.start(second)
    with pytest.raises(AssertionError):
        lanes.finish(first)
    lanes.start(first)
    with pytest.raises(AssertionError):
        lanes.start(first)
    with pytest.raises(AssertionError):
        lanes.finish(second)


def test_what_started_out_of_its_order_leaves_nothing_behind() -> None:
    lanes = Lanes(0, max_beyond_prefix=1, max_taken=4)
    lanes.take(0, "urgent", URGENT)
    for offset in range(1, 15_000, 3):
        lanes.take(offset, f"low{offset}", LOW)
        lanes.take(offset + 1, "urgent", URGENT)
        lanes.take(offset + 2, "urgent", URGENT)
        lanes.finish(start(lanes))
        lanes.finish(start(lanes))
        # No room is left past the first, so it starts before the urgent turn that is ready.
        low = start(lanes)
        assert low.bucket == LOW
        lanes.finish(low)

    assert lanes.held == 1
    assert len(lanes._ready) <= 200
    assert len(lanes._in_ready) == len(lanes._ready)
