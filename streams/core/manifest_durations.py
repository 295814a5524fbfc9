"""Durations in a manifest, as milliseconds.

| written | where |
|---|---|
| `<whole number><unit>`, unit s, m, h, d or w | gates |
| the same with ms, s, m or h, or a bare number of milliseconds | delays and timeouts |

Source: SEMANTICS 1.4.
"""

from __future__ import annotations

import re

from streams.core.bounds import DURATION_MS_MAX
from streams.core.manifest_place import Place
from streams.core.manifest_table import Read

__all__ = ["read_duration", "read_timing"]

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"([1-9][0-9]{0,9})([smhdw])", re.IGNORECASE)
_TIMING = re.compile(r"([1-9][0-9]{0,9})(ms|s|m|h)", re.IGNORECASE)
_TIMING_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def read_duration(value: object, place: Place) -> int:
    """Take `<whole number><unit>`; the unit is s, m, h, d or w.  Returns milliseconds."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        place.expected(value, "a duration from '1s' on, such as '30s', '5m', '2h', '1d' or '1w'")
        return 1
    duration_ms = int(found[1]) * _UNIT_MS[found[2].lower()]
    if duration_ms > DURATION_MS_MAX:
        place.expected(value, "at most 366 days")
        return 1
    return duration_ms


def read_timing(max_ms: int, shown_max: str) -> Read:
    """Return what takes `<whole number><unit>`, unit ms, s, m or h, or whole milliseconds.

    Args: max_ms: the longest that is taken.  shown_max: the same, for people.
    """

    def read(value: object, place: Place) -> int:
        found = _TIMING.fullmatch(value) if isinstance(value, str) else None
        if found is not None:
            timing_ms = int(found[1]) * _TIMING_UNIT_MS[found[2].lower()]
        elif type(value) is int and value >= 1:
            timing_ms = value
        else:
            place.expected(value, "a duration from '1ms' on, such as '250ms', '30s', '5m' or '2h'")
            return 1
        if timing_ms > max_ms:
            place.expected(value, f"at most {shown_max}")
            return 1
        return timing_ms

    return read
