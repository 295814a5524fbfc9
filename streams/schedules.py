"""Cron schedules by `cronsim`, zones by the package `tzdata`: the same answer on every machine.

The zones of the machine itself are never read: two hosts with different editions would disagree
about a tick, and so about a log.

Five fields (minute, hour, day of month, month, day of week), or one of `@hourly`, `@daily`,
`@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually`.  Daylight saving is as in Debian's
cron: a time that the clock jumps over ticks right after the jump, a time that it shows twice ticks
the first time; a schedule whose minute or hour begins with `*` follows elapsed time instead.

Source: SEMANTICS 1.5; DESIGN "An event", cron.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata
from cronsim import CronSim, CronSimError

from streams.core import schedule as core

_FIELDS = 5
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_OFFSET = re.compile(r"(UTC|GMT|Z)?\s*[+-]\d{1,2}(:?\d\d)?|Z", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PROBE = datetime(2026, 1, 1)  # noqa: DTZ001 - any time will do to see whether there is a tick
_HOUR_MS = 3_600_000
_GROWTH = 8


class CronCalendar:
    """Implements `streams.core.schedule.Calendar`."""

    @property
    def zone_rules(self) -> str:
        """See `Calendar.zone_rules`."""
        return tzdata.IANA_VERSION

    def next_after(self, schedule: str, timezone: str, after_ms: int, /) -> int | None:
        """See `Calendar.next_after`."""
        return next(_ticks(schedule, timezone, after_ms), None)

    def newest(
        self, schedule: str, timezone: str, after_ms: int, until_ms: int, limit: int, /
    ) -> list[int]:
        """See `Calendar.newest`."""
        # Looks back no further than it must: after a long stop there may be very many ticks.
        span_ms = _HOUR_MS
        while True:
            start_ms = max(after_ms, until_ms - span_ms)
            found = list(_until(_ticks(schedule, timezone, start_ms), until_ms))
            if start_ms == after_ms or len(found) >= limit:
                return found[-limit:]
            span_ms *= _GROWTH

    def count(
        self, schedule: str, timezone: str, after_ms: int, until_ms: int, limit: int, /
    ) -> int:
        """See `Calendar.count`."""
        counted = 0
        for _ in _until(_ticks(schedule, timezone, after_ms), until_ms):
            counted += 1
            if counted == limit:
                break
        return counted

    def schedule_problem(self, schedule: str, /) -> str | None:
        """See `Calendar.schedule_problem`."""
        text = _spelled_out(schedule)
        fields = len(text.split())
        if text.startswith("@"):
            return f"known macros are {', '.join(sorted(_MACROS))}"
        if fields != _FIELDS:
            return (
                f"it has {fields} fields, expected {_FIELDS}: "
                "minute, hour, day of month, month, day of week"
            )
        try:
            if next(CronSim(text, _PROBE), None) is None:
                return "it never ticks"
        except (CronSimError, ValueError, AssertionError, OverflowError) as error:
            return str(error) or "it cannot be read"
        return None

    def timezone_problem(self, timezone: str, /) -> str | None:
        """See `Calendar.timezone_problem`."""
        if timezone in _zone_names():
            return None
        if _OFFSET.fullmatch(timezone.strip()):
            return "is an offset; name the place, so that daylight saving is known"
        near = get_close_matches(timezone, _zone_names(), n=1)
        return f"is no such zone; did you mean {near[0]!r}?" if near else "is no such zone"


def _spelled_out(schedule: str) -> str:
    return _MACROS.get(schedule.strip().lower(), schedule)


def _ticks(schedule: str, timezone: str, after_ms: int) -> Iterator[int]:
    """Yield every tick after a time, in order."""
    after = (_EPOCH + timedelta(milliseconds=after_ms)).astimezone(_zone(timezone))
    for tick in CronSim(_spelled_out(schedule), after):
        tick_ms = round((tick - _EPOCH).total_seconds()) * 1_000
        # In an hour that the clock shows twice the search begins with the first showing.
        if tick_ms > after_ms:
            yield tick_ms
            after_ms = tick_ms


def _until(ticks: Iterator[int], until_ms: int) -> Iterator[int]:
    for tick_ms in ticks:
        if tick_ms > until_ms:
            return
        yield tick_ms


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if name == core.UTC:
        return UTC
    if name not in _zone_names():
        raise ValueError(f"{name!r} is no time zone of tzdata {version('tzdata')}")
    with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, key=name)


@lru_cache(maxsize=1)
def _zone_names() -> tuple[str, ...]:
    return tuple(files("tzdata").joinpath("zones").read_text("utf-8").split())


CALENDAR = CronCalendar()
"""The one that every stage uses."""
