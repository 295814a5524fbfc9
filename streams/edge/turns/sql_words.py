"""What is written into columns: ids that can be keys, texts that every database takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streams.edge.turns.turn_store import LISTED_MAX, RESULT_CHARS_MAX

__all__ = ["checked_id", "checked_page", "cut", "json_text", "text_of"]

_ID_CHARS_MAX = 256
_JSON_CHARS_MAX = 500_000


def checked_id(name: str, value: str, /) -> str:
    """Return an id that can be a key.

    Raises: ValueError that names it.
    """
    if not 0 < len(value) <= _ID_CHARS_MAX or text_of(value) != value:
        raise ValueError(
            f"{name} is {value[:64]!r}, expected 1 to {_ID_CHARS_MAX} characters of text"
        )
    return value


def checked_page(limit: int, offset: int, /) -> tuple[int, int]:
    """Return both.

    Raises: ValueError that names the wrong one.
    """
    if not 1 <= limit <= LISTED_MAX:
        raise ValueError(f"limit is {limit}, expected 1 to {LISTED_MAX}")
    if offset < 0:
        raise ValueError(f"offset is {offset}, expected 0 or more")
    return limit, offset


def text_of(value: str, /) -> str:
    """Return a text with what no column can hold replaced: NUL, and halves of characters."""
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def cut(value: str | None, /) -> str | None:
    """Return a text as long as a result may be."""
    return None if value is None else text_of(value)[:RESULT_CHARS_MAX]


def json_text(name: str, value: Mapping[str, Any], /) -> str:
    """Return a JSON object as ASCII.

    Raises: ValueError that names it.
    """
    try:
        text = json.dumps(dict(value), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON object: {error}") from None
    if len(text) > _JSON_CHARS_MAX:
        raise ValueError(f"{name} has {len(text)} bytes, {_JSON_CHARS_MAX} at most")
    return text
