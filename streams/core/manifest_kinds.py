"""The keys of a trigger that belong to one way in which events arrive.

    kind = "cron"
    provider = "cron"
    schedule = "30 9 * * MON-FRI"
    timezone = "Europe/Berlin"           # UTC when left out
    missed = "last"                      # or "skip", or "all"

A key of one kind is refused on a trigger of another: it would do nothing.

Source: SEMANTICS 1.4, 1.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.core import cron
from streams.core.manifest_place import Place, shown
from streams.core.manifest_table import Field, read_choice
from streams.core.schedule import CHARS_MAX, UTC

__all__ = ["KIND_FIELDS", "keys_of_kind", "kind_rules"]


def _read_schedule(value: object, place: Place) -> str:
    if not isinstance(value, str) or not value.strip():
        place.expected(value, "a cron expression such as '30 9 * * MON-FRI'")
        return ""
    problem = None
    if len(value) > CHARS_MAX:
        problem = f"it has {len(value)} characters, expected at most {CHARS_MAX}"
    elif place.calendar is not None:
        problem = place.calendar.schedule_problem(value)
    if problem is not None:
        place.refuse(f"is {shown(value)}, which is no cron expression: {problem}")
    return value


def _read_timezone(value: object, place: Place) -> str:
    expectation = "an IANA name such as 'Europe/Berlin' or 'UTC'"
    if not isinstance(value, str):
        place.expected(value, expectation)
        return UTC
    problem = None if place.calendar is None else place.calendar.timezone_problem(value)
    if len(value) > CHARS_MAX:
        problem = f"has {len(value)} characters"
    if problem is not None:
        place.refuse(f"is {shown(value)}, expected {expectation}: it {problem}")
    return value


_CRON = (
    Field(name="schedule", read=_read_schedule),
    Field(name="timezone", read=_read_timezone, default=UTC),
    Field(name="missed", read=read_choice("last", "skip", "all"), default=cron.MISSED_DEFAULT),
)

_BY_KIND: Mapping[str, tuple[Field, ...]] = {"cron": _CRON}

KIND_FIELDS: tuple[Field, ...] = tuple(field for fields in _BY_KIND.values() for field in fields)
"""The keys of a trigger that this module reads."""


def keys_of_kind(kind: str | None, /) -> frozenset[str]:
    """Return the keys that a kind of trigger has of its own; those of all kinds for None."""
    fields = KIND_FIELDS if kind is None else _BY_KIND.get(kind, ())
    return frozenset(field.name for field in fields)


def kind_rules(values: Mapping[str, Any], _exports: Mapping[str, str], place: Place) -> None:
    """Each kind has its own keys; a cron trigger needs a schedule."""
    kind: str = values["kind"]
    if not kind:
        return
    for owner, fields in _BY_KIND.items():
        if kind == owner:
            continue
        for field in fields:
            if values[field.name] != field.default:
                place.field(field.name).refuse(f"is a key of kind {owner!r}, not of {kind!r}")
    if kind == "cron":
        _cron_rules(values, place)


def _cron_rules(values: Mapping[str, Any], place: Place) -> None:
    if values["schedule"] is None:
        place.field("schedule").refuse(
            "is missing: a cron trigger needs one, such as schedule = '30 9 * * MON-FRI'"
        )
    match: Mapping[str, Any] = values["match"] or {"events": []}
    for index, event in enumerate(match["events"]):
        if event != cron.TICK_KIND:
            place.field("match").field("events").field(index).expected(
                event, f"{cron.TICK_KIND!r}, the one kind of event that a schedule makes"
            )
