"""Waiting for an owner that hands over: as long as it is heard of, hardly longer than it said."""

from __future__ import annotations

import pytest

from streams.core.turn.bookmark import Bookmark
from streams.core.turn.patience import Patience

SILENCE_MS = 600


def yields(ms: int, *, fence: int = 3) -> Bookmark:
    return Bookmark(12, fence, ms)


@pytest.mark.parametrize("bookmark", [None, Bookmark(12, 3)])
def test_what_nobody_hands_over_is_not_waited_for(bookmark: Bookmark | None) -> None:
    assert Patience(SILENCE_MS).is_over(0, bookmark, 7)


def test_one_that_goes_on_saying_so_is_waited_for_until_it_says_so_no_more() -> None:
    patience = Patience(SILENCE_MS)
    for each in range(20):
        assert not patience.is_over(0, yields(60_000 - each * 500), each * 500)
    assert patience.is_over(0, Bookmark(12, 3), 10_001)


def test_one_that_is_silent_is_dead_and_not_a_millisecond_earlier() -> None:
    patience = Patience(SILENCE_MS)
    assert not patience.is_over(0, yields(60_000), 0)
    assert not patience.is_over(0, yields(59_000), 500)
    assert not patience.is_over(0, yields(59_000), 500 + SILENCE_MS - 1)
    assert patience.is_over(0, yields(59_000), 500 + SILENCE_MS)


def test_none_is_waited_for_much_longer_than_it_said_at_first() -> None:
    patience = Patience(SILENCE_MS)
    assert not patience.is_over(0, yields(1_000), 0)
    for now_ms in range(1, 1_000 + SILENCE_MS):
        assert not patience.is_over(0, yields(5_000 + now_ms), now_ms)
    assert patience.is_over(0, yields(1), 1_000 + SILENCE_MS)


def test_another_owner_is_another_word() -> None:
    patience = Patience(SILENCE_MS)
    assert not patience.is_over(0, yields(0, fence=3), 0)
    assert not patience.is_over(0, yields(0, fence=4), SILENCE_MS)
    assert patience.is_over(0, yields(0, fence=4), 2 * SILENCE_MS)


def test_partitions_are_waited_for_one_by_one_and_forgotten() -> None:
    patience = Patience(SILENCE_MS)
    assert not patience.is_over(0, yields(9_000), 0)
    assert not patience.is_over(1, yields(9_000), SILENCE_MS)
    assert patience.is_over(0, yields(9_000), SILENCE_MS)
    patience.forget(0)
    assert not patience.is_over(0, yields(9_000), SILENCE_MS)
    assert patience.is_over(1, yields(9_000), 2 * SILENCE_MS)
