"""What a person may have meant."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

__all__ = ["listed", "suggestion"]

_SHOWN_MAX = 8


def suggestion(given: str, known: Sequence[str]) -> str:
    """Continue `X is unknown` with what is near to it, or else with what is known."""
    near = get_close_matches(given, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not known:
        return "; there is none"
    return f"; known are {listed(known)}"


def listed(known: Sequence[str]) -> str:
    """Name what is known; of many, the first ones and how many more there are."""
    more = len(known) - _SHOWN_MAX
    shown = ", ".join(known[:_SHOWN_MAX])
    return f"{shown} and {more} more" if more > 0 else shown
