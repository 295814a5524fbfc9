"""What the rows of a partition come to, said beside its position: nobody need read them for it.

Source: DESIGN "State", decision A5.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

__all__ = ["STANDING", "Standing", "Tally", "encode_standing", "read_standing"]

STANDING: Final = "standing"
"""Header of a changelog's position records; it is derived from the rows, and no part of them."""

Standing = dict[str, Mapping[str, int]]
"""By row prefix: how many rows have each value of the tallied field, or the numbers of a row."""


class Tally:
    """How many rows of one type have each value of a field; none are named with 0."""

    __slots__ = ("counts", "field")

    def __init__(self, field: str) -> None:
        self.field = field
        self.counts: dict[str, int] = {}

    def change(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Note that a row is stored, or gone; None stands for none."""
        field = self.field
        was = None if before is None else before[field]
        now = None if after is None else after[field]
        if was == now:
            return
        counts = self.counts
        if now is not None:
            counts[now] = counts.get(now, 0) + 1
        if was is not None:
            counts[was] -= 1
            if not counts[was]:
                del counts[was]


def encode_standing(standing: Standing) -> bytes:
    """Return the header's content; empty when there is nothing to say."""
    return json.dumps(standing, separators=(",", ":")).encode() if standing else b""


def read_standing(headers: Iterable[tuple[str, bytes | None]]) -> Standing | None:
    """Return what a position record says of the rows; None when it says nothing of use."""
    for name, content in headers:
        if name == STANDING and content:
            try:
                said: Any = json.loads(content)
            except ValueError:
                return None
            return cast("Standing", said) if _is_standing(said) else None
    return None


def _is_standing(said: object) -> bool:
    return isinstance(said, dict) and all(
        isinstance(each, dict)
        and all(isinstance(count, int) for count in cast("dict[str, object]", each).values())
        for each in cast("dict[str, object]", said).values()
    )
