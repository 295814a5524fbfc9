"""Bookmarks: the next owner loads what says something of turns that are still open, and no more."""

from __future__ import annotations

import pytest

from streams.core.turn.bookmark import Bookmark, Floors, parse_bookmark


def test_a_bookmark_is_read_as_it_was_written() -> None:
    bookmark = Bookmark(12, 3)

    assert str(bookmark) == "claims=12 fence=3"
    assert parse_bookmark(str(bookmark)) == bookmark


@pytest.mark.parametrize("yields_ms", [0, 60_000])
def test_a_bookmark_says_how_long_its_owner_yields(yields_ms: int) -> None:
    bookmark = Bookmark(12, 3, yields_ms)

    assert str(bookmark) == f"claims=12 fence=3 yields={yields_ms}"
    assert parse_bookmark(str(bookmark)) == bookmark


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "x",
        "claims=1",
        "claims=-1 fence=2",
        "claims=1 fence=2 ",
        "claims=" + "9" * 20,
        "claims=1 fence=2 yields=-1",
    ],
)
def test_what_is_no_bookmark_is_none(metadata: str | None) -> None:
    assert parse_bookmark(metadata) is None


def test_loading_begins_where_the_first_open_turn_was_taken() -> None:
    floors = Floors(loaded_from=0, known_until=0)
    floors.took(0, 10)
    floors.took(1, 10)
    floors.took(2, 50)

    assert floors.at(0, 3, 90) == 10
    assert floors.at(1, 3, 90) == 10
    assert floors.at(2, 3, 90) == 50
    assert floors.at(3, 3, 90) == 90, "nothing is open: nothing need be loaded"


def test_turns_that_others_spoke_of_keep_the_bookmark_that_was_loaded_from() -> None:
    floors = Floors(loaded_from=7, known_until=2)
    floors.took(0, 40)

    assert floors.at(0, 1, 40) == 7
    assert floors.at(1, 1, 40) == 7, "of the next turn something was said before"
    floors.took(1, 40)
    assert floors.at(2, 2, 40) == 40
    floors.took(2, 40)
    assert floors.at(2, 3, 60) == 40


def test_what_is_held_of_turns_that_are_committed_is_let_go() -> None:
    floors = Floors(loaded_from=0, known_until=0)
    for offset in range(10_000):
        floors.took(offset, offset + 1)
        floors.at(offset, offset + 1, offset + 1)

    assert len(floors._floors) <= 2
