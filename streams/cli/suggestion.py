"""What a person may have meant."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

__all__ = ["suggestion"]

_SHOWN_MAX = 8


def suggestion(given: str, known: Sequence[str]) -> str:
    """Continue `X is unknown` with what is near to it, or else with what is known."""
    near = get_close_matches(given, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not known:
        return "; there is none"
    more = ", ..." if len(known) > _SHOWN_MAX else ""
    return f"; known are {', '.join(known[:_SHOWN_MAX])}{more}"
