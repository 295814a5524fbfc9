"""Render stream time for people: RFC 3339 from epoch milliseconds, by arithmetic alone.

Source: SEMANTICS 0 "Clock conventions".
"""

from __future__ import annotations

from functools import lru_cache

_DAY_S = 86_400


def rfc3339(at_ms: int, /) -> str:
    """`2026-11-28T00:33:09.123Z` for milliseconds since the epoch; years 1 to 9999."""
    seconds, millis = divmod(at_ms, 1_000)
    return f"{_to_second(seconds)}.{millis:03d}Z"


@lru_cache(maxsize=256)  # consecutive records share their second
def _to_second(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY_S)
    year, month, day = _civil(days)
    return (
        f"{year:04d}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    )


def _civil(days: int) -> tuple[int, int, int]:
    """Proleptic Gregorian date of a day number since 1970-01-01.

    Counts in eras of 400 years that begin on 1 March, so that the leap day is the last day of its
    year.
    """
    shifted = days + 719_468
    era, day_of_era = divmod(shifted, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    return year, month, day
