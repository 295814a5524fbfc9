"""Times as a person gives them to an option: one form for every command.

    2026-03-01T12:00:00Z    2026-03-01T12:00+01:00    2026-03-01 12:00    2026-03-01

Without a zone they are UTC; a date is its first moment; what is before 1970 is its beginning.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from streams.errors import ConfigError

__all__ = ["EXPECTED", "moment_ms", "read_moment"]

EXPECTED = "a time such as 2026-03-01T12:00:00Z, or a date, whose midnight in UTC is meant"

_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?", re.IGNORECASE
)


def moment_ms(text: str, /) -> int | None:
    """Read a time, ms since epoch; None for what is none."""
    if _MOMENT.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(int(moment.timestamp() * 1_000), 0)  # brokers mean something else by less
    except ValueError:  # no such day or hour
        return None


def read_moment(option: str, text: str | None, /) -> int | None:
    """Read an option's time; None when it is not given.  Raises ConfigError."""
    found = None if text is None else moment_ms(text)
    if found is None and text is not None:
        raise ConfigError(f"{option} is {text!r}, expected {EXPECTED}")
    return found
