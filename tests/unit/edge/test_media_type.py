"""A Content-Type, read in bounded time."""

from __future__ import annotations

import pytest
from aiohttp.helpers import parse_content_type
from hypothesis import given
from hypothesis import strategies as st

from streams.edge.ingest.answer import Refused
from streams.edge.ingest.media_type import CHARS_MAX, MediaType, media_type

UNKNOWN = "application/octet-stream"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("application/json", ("application/json", None)),
        ("Application/JSON ; Charset=UTF-8", ("application/json", "UTF-8")),
        ('application/json;charset="latin-1"', ("application/json", "latin-1")),
        ("application/json; a=b; charset=utf-8; charset=x", ("application/json", "utf-8")),
        ("application/json; charset=", ("application/json", "")),
        ("application/json; charset=\udc80", ("application/json", "?")),
        ("application/cloudevents+json", ("application/cloudevents+json", None)),
        ("application/json;;;", ("application/json", None)),
        ("application/\udc80", (UNKNOWN, None)),
        ("json", (UNKNOWN, None)),
        ("a b/json", (UNKNOWN, None)),
        ("", (UNKNOWN, None)),
    ],
)
def test_name_and_charset_are_what_it_says(text: str, expected: tuple[str, str | None]) -> None:
    assert media_type({"Content-Type": text}) == MediaType(*expected)


def test_without_one_a_body_is_an_octet_stream() -> None:
    assert media_type({}) == MediaType(UNKNOWN, None)


TOKEN = st.text("abcxyzABCXYZ0189-.+", min_size=1, max_size=8)


@given(st.tuples(TOKEN, TOKEN), st.lists(st.tuples(TOKEN, TOKEN), max_size=3))
def test_it_is_what_a_whole_mail_parser_finds(
    name: tuple[str, str], parameters: list[tuple[str, str]]
) -> None:
    text = "; ".join(["/".join(name), *(f"{key}={value}" for key, value in parameters)])
    assert media_type({"Content-Type": text}).name == parse_content_type(text)[0]


def test_a_long_one_is_not_read_at_all() -> None:
    """The mail parser takes half a minute for this one."""
    parameters = ";a" * 1_500
    with pytest.raises(Refused) as refused:
        media_type({"Content-Type": f"application/json{parameters}"})
    assert refused.value.status == 415
    assert refused.value.problems == [f"Content-Type has more than {CHARS_MAX} characters"]
    fits = "application/json;" + "a" * (CHARS_MAX - 17)
    assert len(fits) == CHARS_MAX
    assert media_type({"Content-Type": fits}).name == "application/json"
