"""What an owner commits as its place: with what it says of a hand-over, once for each word."""

from __future__ import annotations

from streams.core.turn.bookmark import Bookmark, parse_bookmark
from streams.core.turn.held import Loaded
from streams.core.turn.memory import Memory
from streams.core.turn.progress import Progress


def progress(*, yields: bool = False) -> Progress:
    return Progress(Loaded(0, 7, Memory(7), 5, 9, yields=yields), fence=4)


def test_a_place_is_due_when_it_has_moved() -> None:
    one = progress()
    assert not one.is_due(7)
    assert one.is_due(8)
    assert parse_bookmark(one.commit(8, 9)) == Bookmark(5, 4)
    assert not one.is_due(8)


def test_each_word_of_a_hand_over_is_due_once_and_the_last_one_takes_it_back() -> None:
    one = progress()
    said: list[int | None] = []
    for ms in (900, 900, 400, None, None):
        one.yields_within(ms)
        if one.is_due(7):
            bookmark = parse_bookmark(one.commit(7, 7))
            assert bookmark is not None
            said.append(bookmark.yields_ms)
            assert not one.is_due(7)
    assert said == [900, 400, None]


def test_a_word_that_was_not_committed_yet_is_taken_back_by_a_commit_all_the_same() -> None:
    one = progress()
    one.yields_within(900)
    one.yields_within(None)
    assert one.is_due(7), "the one before may be under way"


def test_what_a_dead_owner_has_said_is_taken_back_at_once() -> None:
    one = progress(yields=True)
    assert one.is_due(7)
    assert parse_bookmark(one.commit(7, 7)) == Bookmark(9, 4), "nothing is open"
    assert not one.is_due(7)
