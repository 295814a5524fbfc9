"""Cron schedules in time zones: what folds ask of the library that reads calendars.

When a schedule ticks follows from the schedule, the zone and the zone's rules, and from nothing
else, so a fold may ask; the library and the rules themselves stay outside the core.

Source: DESIGN laws 2 and 4; docs/adr/0010.
"""

from __future__ import annotations

from typing import Protocol

UTC = "UTC"
"""The zone of a schedule that names none."""

CHARS_MAX = 200
"""Characters of a schedule, and of a zone's name."""


class Calendar(Protocol):
    """Finds ticks.  All times are ms since epoch; ticks are whole minutes."""

    @property
    def zone_rules(self) -> str:
        """Edition of the time zone database, for example `2026f`."""
        ...

    def next_after(self, schedule: str, timezone: str, after_ms: int, /) -> int | None:
        """Return the first tick after a time; None when there is none within 50 years."""
        ...

    def newest(
        self, schedule: str, timezone: str, after_ms: int, until_ms: int, limit: int, /
    ) -> list[int]:
        """Return the last `limit` ticks in `(after_ms, until_ms]`, oldest first."""
        ...

    def count(
        self, schedule: str, timezone: str, after_ms: int, until_ms: int, limit: int, /
    ) -> int:
        """Return how many ticks there are in `(after_ms, until_ms]`, counted up to `limit`."""
        ...

    def schedule_problem(self, schedule: str, /) -> str | None:
        """What makes a text no usable schedule, or None."""
        ...

    def timezone_problem(self, timezone: str, /) -> str | None:
        """What makes a text no name of a zone, or None."""
        ...
