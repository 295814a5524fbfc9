"""What a request's body holds: one event, an array of events, or an object with `events`.

Source: SEMANTICS 2.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from streams.edge.ingest.events import (
    PROBLEMS_MAX,
    EventRequest,
    explain_event,
    explain_json,
    is_possible,
)

__all__ = ["EVENTS_MAX", "Body", "MalformedBody", "parse_body"]

EVENTS_MAX = 1_000
"""Events of one request: their acks are awaited together, so that one request cannot hold many."""

_ONE = msgspec.json.Decoder(EventRequest)
_MANY = msgspec.json.Decoder(list[EventRequest])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])


class _Wrapped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    events: list[msgspec.Raw]


_WRAPPED = msgspec.json.Decoder(_Wrapped)


class MalformedBody(ValueError):  # noqa: N818 - it names what was found
    """A body without usable events; `problems` lists what is wrong, at most 50 of it."""

    def __init__(self, problems: Iterable[str]) -> None:
        found = list(problems)
        more = len(found) - PROBLEMS_MAX
        self.problems = found[:PROBLEMS_MAX] + ([f"and {more} more"] if more > 0 else [])
        super().__init__("; ".join(self.problems))


class Body(NamedTuple):
    """`is_batch` says that an array was given, also one of a single event."""

    events: list[EventRequest]
    is_batch: bool


def parse_body(text: bytes) -> Body:
    """Read a request's body.  Raises MalformedBody that lists everything wrong with it."""
    try:
        if not text.isascii():
            text.decode()  # payloads are kept as they are, so that nobody else would notice
        body = _parse(text)
    except UnicodeDecodeError as error:
        raise MalformedBody([f"the body is not UTF-8 at byte {error.start}"]) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedBody(_explain(text, error)) from error
    if not all(is_possible(event) for event in body.events):
        raise MalformedBody(_explain(text, None))
    if not body.events:
        raise MalformedBody(["the body has no event, expected at least one"])
    if len(body.events) > EVENTS_MAX:
        count = f"the body has {len(body.events)} events, expected at most {EVENTS_MAX}"
        raise MalformedBody([count])
    return body


def _parse(text: bytes) -> Body:
    if text.lstrip()[:1] == b"[":
        return Body(_MANY.decode(text), is_batch=True)
    try:
        return Body([_ONE.decode(text)], is_batch=False)
    except msgspec.ValidationError:
        elements = _unwrap(text)
        if elements is None:
            raise
    return Body([_ONE.decode(element) for element in elements], is_batch=True)


def _unwrap(text: bytes) -> list[msgspec.Raw] | None:
    """Return the elements of `{"events": [...]}`, or None when the body is something else."""
    try:
        return _WRAPPED.decode(text).events
    except msgspec.DecodeError:
        return None


def _has_events(text: bytes) -> bool:
    try:
        return "events" in msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False


def _explain(text: bytes, error: Exception | None) -> list[str]:
    """Say what is wrong with a body that could not be read, or (`error` None) not be meant."""
    elements, where = _unwrap(text), "events"
    if elements is None and text.lstrip()[:1] == b"[":
        where = ""
        try:
            elements = _ELEMENTS.decode(text)
        except (msgspec.DecodeError, RecursionError) as malformed:
            return [f"the body {explain_json(text, malformed)}"]
    if elements is None and _has_events(text):
        problems = ["events: expected an array of events, and no other field beside it"]
    elif elements is None:
        problems = explain_event(text)
    else:
        problems = []
        for index, element in enumerate(elements):
            problems += explain_event(bytes(element), f"{where}[{index}].", told=len(problems))
    return problems or [f"the body is not usable: {error}"]
