"""The keys of a trigger that belong to one way in which events arrive.

    kind = "cron"
    provider = "cron"
    schedule = "30 9 * * MON-FRI"
    timezone = "Europe/Berlin"           # UTC when left out
    missed = "last"                      # or "skip", or "all"

    kind = "stream"
    provider = "kafka"
    topic = "orders"                     # or topics = ["orders", "refunds"]
    format = "json"                      # or "text", "bytes", "avro"
    start = "latest"                     # or "earliest"

A key of one kind is refused on a trigger of another: it would do nothing.

Source: SEMANTICS 1.4, 1.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.core import channel, cron, stream_source
from streams.core.manifest_place import Place, shown
from streams.core.manifest_table import Field, read_choice, read_texts
from streams.core.schedule import CHARS_MAX, UTC

__all__ = ["KIND_FIELDS", "events_of", "keys_of_kind", "kind_rules"]


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


def _read_topic(value: object, place: Place) -> str:
    if not isinstance(value, str) or not stream_source.is_topic(value):
        place.expected(value, "the name of a topic: 1 to 249 letters, digits and . _ -")
        return ""
    if stream_source.is_ours(value):
        place.refuse(f"is {shown(value)}, which this application writes itself")
    return value


def _read_topics(value: object, place: Place) -> list[str]:
    topics = read_texts(value, place)
    if len(topics) > stream_source.TOPICS_MAX:
        place.refuse(f"has {len(topics)} entries, expected at most {stream_source.TOPICS_MAX}")
    for index, topic in enumerate(topics):
        if topic:
            _read_topic(topic, place.field(index))
    return topics


_STREAM = (
    Field(name="topic", read=_read_topic),
    Field(name="topics", read=_read_topics),
    Field(name="format", read=read_choice(*stream_source.FORMATS), default="json"),
    Field(name="start", read=read_choice(*stream_source.STARTS), default="latest"),
)

_BY_KIND: Mapping[str, tuple[Field, ...]] = {"cron": _CRON, stream_source.KIND: _STREAM}

KIND_FIELDS: tuple[Field, ...] = tuple(field for fields in _BY_KIND.values() for field in fields)
"""The keys of a trigger that this module reads."""


def keys_of_kind(kind: str | None, /) -> frozenset[str]:
    """Return the keys that a kind of trigger has of its own; those of all kinds for None."""
    fields = KIND_FIELDS if kind is None else _BY_KIND.get(kind, ())
    return frozenset(field.name for field in fields)


def kind_rules(values: Mapping[str, Any], _exports: Mapping[str, str], place: Place) -> None:
    """Each kind has its own keys; a cron trigger needs a schedule, a stream its topics."""
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
    elif kind == stream_source.KIND:
        _stream_rules(values, place)
    elif kind == channel.KIND:
        _channel_rules(values, place)


def events_of(kind: str, events: list[str], /) -> list[str]:
    """Return the event kinds that a trigger takes, channels' selectors in full."""
    if kind != channel.KIND:
        return events
    return list(dict.fromkeys(channel.selector(event) for event in events))


def _channel_rules(values: Mapping[str, Any], place: Place) -> None:
    match: Mapping[str, Any] = values["match"] or {"events": []}
    for index, event in enumerate(match["events"]):
        try:
            channel.selector(event)
        except ValueError as error:
            place.field("match").field("events").field(index).refuse(str(error))


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


def _stream_rules(values: Mapping[str, Any], place: Place) -> None:
    provider: str = values["provider"]
    if values["topic"] is None and not values["topics"]:
        place.field("topic").refuse(
            f"is missing: a stream of {provider!r} needs topic = '…' or topics = ['…', '…']"
        )
    elif values["topic"] is not None and values["topics"] is not None:
        place.field("topic").refuse("stands beside topics: name all of them there")
