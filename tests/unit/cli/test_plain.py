"""What others wrote steers no terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

from streams.cli.log_record import show_record
from streams.cli.plain import escape, plain
from streams.codec import Codec
from streams.edge.topic_reader import ReadRecord


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("größer [bold]", "größer [bold]"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\x9b31m", "a\\x9b31m"),
        ("two\r\nlines", "two\\r\\nlines"),
        ("a\u202eb", "a\\u202eb"),
        ("a\ud800b", "a\\ud800b"),
    ],
)
def test_each_character_of_a_plain_text_can_be_seen(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_text_in_a_place_of_markup_is_neither_markup_nor_control() -> None:
    console = Console(width=80, no_color=True)
    with console.capture() as captured:
        console.print(escape("[red]a\x1b[2J[/]"))
    assert captured.get() == "[red]a\\x1b[2J[/]\n"


def test_a_record_s_headers_kind_and_value_are_shown_plainly() -> None:
    value = {"binding_id": "t", "dedupe_key": "a\x9b31m\u202e", "event_id": "e", "dispatch_id": "d"}
    record = ReadRecord(
        partition=0,
        offset=7,
        timestamp=0,
        key=b"k\x1b",
        value=Codec().encode("dedupe_claim", {**value, "expires_at_ms": 1}),
        headers=[("kind", b"a\x1b[2Jb"), ("tenant_id", "\x9b31m".encode())],
    )
    line = show_record(record, "trigger.inbox.claims", Codec()).line().plain
    assert line.isprintable()
    assert "a\\x1b[2Jb key=k\\x1b tenant_id=\\x9b31m" in line
    assert "a\\x9b31m\\u202e" in line
