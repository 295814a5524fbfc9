"""When a schedule ticks: plain times against a slow reference, and the days when clocks change."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.schedules import CALENDAR

MINUTE_MS = 60_000
DAY_MS = 86_400_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


def utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%MZ")


def ticks(schedule: str, zone: str, start: str, count: int) -> list[str]:
    found: list[str] = []
    at_ms = ms(start)
    for _ in range(count):
        next_ms = CALENDAR.next_after(schedule, zone, at_ms)
        assert next_ms is not None
        found.append(utc(next_ms))
        at_ms = next_ms
    return found


# ---------------------------------------------------------------------- plain times
def fields(
    values: tuple[int, int], end: int | None = None
) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A cron field and the values that it stands for; `*` goes to `end`."""
    low, high = values
    end = high if end is None else end
    every = st.just(("*", frozenset(range(low, end + 1))))
    one = st.integers(low, high).map(lambda at: (str(at), frozenset({at})))
    step = st.integers(2, 20).map(lambda by: (f"*/{by}", frozenset(range(low, end + 1, by))))
    span = st.tuples(st.integers(low, high), st.integers(low, high)).map(
        lambda ends: (f"{min(ends)}-{max(ends)}", frozenset(range(min(ends), max(ends) + 1)))
    )
    return st.one_of(every, one, step, span)


# A single day is one that every month has, so that each schedule ticks.
DAYS = fields((1, 28), 31)
SCHEDULES = st.tuples(fields((0, 59)), fields((0, 23)), DAYS, fields((1, 12)))


def matches(at_ms: int, minutes: object, hours: object, days: object, months: object) -> bool:
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return at.minute in minutes and at.hour in hours and at.day in days and at.month in months  # type: ignore[operator]


@given(
    found=SCHEDULES,
    start=st.integers(ms("2026-01-01T00:00Z"), ms("2027-01-01T00:00Z")),
    minutes=st.integers(1, 2_000),
    limit=st.integers(1, 50),
)
def test_ticks_in_utc_are_the_minutes_that_match(
    found: tuple[tuple[str, frozenset[int]], ...], start: int, minutes: int, limit: int
) -> None:
    schedule = " ".join([*(text for text, _ in found), "*"])
    sets = [values for _, values in found]
    end = start + minutes * MINUTE_MS
    first = start - start % MINUTE_MS + MINUTE_MS
    expected = [at for at in range(first, end + 1, MINUTE_MS) if matches(at, *sets)]
    assert CALENDAR.newest(schedule, "UTC", start, end, limit) == expected[-limit:]
    assert CALENDAR.count(schedule, "UTC", start, end, limit) == min(len(expected), limit)
    following = CALENDAR.next_after(schedule, "UTC", start)
    assert following is not None
    assert (following <= end) == bool(expected)
    if expected:
        assert following == expected[0]


@given(
    schedule=st.sampled_from(
        ["30 2 * * *", "15,45 1-2 * * *", "*/10 * * * *", "0 * * * *", "5 */2 * * *", "0 3 * * 0"]
    ),
    zone=st.sampled_from(
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo"]
    ),
    start=st.integers(ms("2026-01-01T00:00Z"), ms("2027-01-01T00:00Z")),
)
def test_a_search_that_begins_anew_at_each_tick_finds_the_same_ticks(
    schedule: str, zone: str, start: int
) -> None:
    end = start + 3 * DAY_MS
    at_once = CALENDAR.newest(schedule, zone, start, end, 10_000)
    one_by_one: list[int] = []
    at: int | None = start
    while (at := CALENDAR.next_after(schedule, zone, at or start)) is not None and at <= end:
        one_by_one.append(at)
    assert at_once == one_by_one
    assert all(earlier < later for earlier, later in pairwise([start, *at_once]))


# ---------------------------------------------------------------------- when clocks change
def test_a_time_that_the_clock_jumps_over_ticks_right_after_the_jump() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00Z", 3) == [
        "2026-03-28T01:30Z",
        "2026-03-29T01:00Z",
        "2026-03-30T00:30Z",
    ]


def test_a_time_that_the_clock_shows_twice_ticks_the_first_time() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", 2) == [
        "2026-10-25T00:30Z",
        "2026-10-26T01:30Z",
    ]


def test_a_trigger_made_in_the_second_showing_waits_for_the_next_day() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10Z", 1) == ["2026-10-26T01:30Z"]


def test_a_schedule_by_elapsed_time_ticks_in_both_showings() -> None:
    assert ticks("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:59Z", 5) == [
        "2026-10-25T00:00Z",
        "2026-10-25T00:30Z",
        "2026-10-25T01:00Z",
        "2026-10-25T01:30Z",
        "2026-10-25T02:00Z",
    ]


def test_the_zone_decides_when_a_day_begins() -> None:
    assert ticks("@daily", "Asia/Kolkata", "2026-06-01T00:00Z", 1) == ["2026-06-01T18:30Z"]


def test_the_rules_are_those_of_the_package_not_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONTZPATH", "/nowhere")
    ZoneInfo.clear_cache()
    assert CALENDAR.zone_rules.startswith("20")
    assert ticks("0 12 * * *", "Europe/Paris", "2026-07-01T00:00Z", 1) == ["2026-07-01T10:00Z"]


# ---------------------------------------------------------------------- long stops
def test_the_newest_of_very_many_ticks_are_found_without_looking_at_all() -> None:
    start, end = ms("2016-01-01T00:00Z"), ms("2026-01-01T00:00Z")
    found = CALENDAR.newest("* * * * *", "UTC", start, end, 3)
    assert [utc(at) for at in found] == [
        "2025-12-31T23:58Z",
        "2025-12-31T23:59Z",
        "2026-01-01T00:00Z",
    ]
    assert CALENDAR.count("* * * * *", "UTC", start, end, 1_000) == 1_000


def test_a_rare_tick_is_found_over_years() -> None:
    start, end = ms("2021-01-01T00:00Z"), ms("2026-01-01T00:00Z")
    [leap_day] = CALENDAR.newest("0 0 29 2 *", "UTC", start, end, 5)
    assert utc(leap_day) == "2024-02-29T00:00Z"


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("* * * *", "it has 4 fields, expected 5"),
        ("* * * * * *", "it has 6 fields, expected 5"),
        ("60 * * * *", "Bad minute"),
        ("* 24 * * *", "Bad hour"),
        ("* * 0 * *", "Bad day-of-month"),
        ("* * * 13 *", "Bad month"),
        ("* * * * NOP", "Bad day-of-week"),
        ("*/0 * * * *", "Bad minute"),
        ("5-1 * * * *", "Bad minute"),
        ("0 0 30 2 *", "Bad day-of-month"),
        ("@sometimes", "known macros are @annually, @daily, @hourly"),
        ("L * * * *", "Bad minute"),
        ("* * L/2-3 * *", ""),
    ],
)
def test_what_is_no_schedule_is_said(schedule: str, problem: str) -> None:
    found = CALENDAR.schedule_problem(schedule)
    assert found is not None
    assert problem in found


@pytest.mark.parametrize(
    "schedule", ["@hourly", "@Daily", "0 9 * * MON-FRI", "0 0 L * *", "0 0 * * 5L", "0 0 * * MON#2"]
)
def test_what_is_a_schedule_is_taken(schedule: str) -> None:
    assert CALENDAR.schedule_problem(schedule) is None


@pytest.mark.parametrize(
    ("zone", "problem"),
    [
        ("+02:00", "is an offset"),  # vector 1-17
        ("UTC+2", "is an offset"),
        ("gmt-5", "is an offset"),
        ("Europe/Berlinn", "did you mean 'Europe/Berlin'?"),
        ("../../etc/passwd", "is no such zone"),
        ("", "is no such zone"),
    ],
)
def test_what_is_no_zone_is_said(zone: str, problem: str) -> None:
    assert problem in (CALENDAR.timezone_problem(zone) or "")


def test_zones_are_taken_by_every_name() -> None:
    for zone in ("UTC", "Etc/UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "US/Pacific"):
        assert CALENDAR.timezone_problem(zone) is None
        assert CALENDAR.next_after("0 0 1 1 *", zone, ms("2026-01-02T00:00Z")) is not None


def test_no_zone_drifts_by_more_than_a_day() -> None:
    for zone in ("Pacific/Kiritimati", "Pacific/Niue"):
        at = CALENDAR.next_after("0 0 15 6 *", zone, ms("2026-06-01T00:00Z"))
        assert at is not None
        assert abs(at - ms("2026-06-15T00:00Z")) <= timedelta(days=1).total_seconds() * 1_000
