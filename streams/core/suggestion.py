"""What a person may have meant."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

__all__ = ["listed", "near_to", "no_export", "suggestion"]

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


def near_to(given: str, known: Sequence[str]) -> str:
    """Continue a list of what is known with what is near to what was given, if anything is."""
    near = get_close_matches(given.lower(), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def no_export(module: str, exports: Collection[str]) -> str:
    """Say that a manifest exports no such module, and what it does export."""
    return f"[exports] has no {module!r}{suggestion(module, sorted(exports))}"
