"""What is told of rows beside a position."""

from __future__ import annotations

import pytest

from streams.engine.tally import STANDING, Standing, Tally, encode_standing, read_standing


def test_a_row_counts_once_under_its_last_value() -> None:
    tally = Tally("status")
    tally.change(None, {"status": "invoked"})
    tally.change(None, {"status": "invoked"})
    tally.change({"status": "invoked"}, {"status": "running"})
    tally.change({"status": "running"}, {"status": "running"})
    assert tally.counts == {"invoked": 1, "running": 1}
    tally.change({"status": "running"}, None)
    tally.change(None, None)
    assert tally.counts == {"invoked": 1}


def test_what_was_told_is_read() -> None:
    said: Standing = {"d": {"invoked": 3}, "dedupe": {"duplicates": 0, "active": 7}}
    assert read_standing([("other", b"x"), (STANDING, encode_standing(said))]) == said
    assert encode_standing({}) == b""


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff", b"{", b"[]", b"3", b'{"d":3}', b'{"d":{"invoked":"3"}}']
)
def test_what_says_nothing_of_use_is_as_if_it_were_not_there(content: bytes | None) -> None:
    assert read_standing([(STANDING, content)]) is None
    assert read_standing([]) is None
