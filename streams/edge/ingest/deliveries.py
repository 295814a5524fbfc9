"""Webhook deliveries kept in a file, one JSON object a line, as events to send.

    {"event": "issues", "payload": {"action": "opened", ...}}        as GitHub delivers it
    {"provider": "stripe", "kind": "charge.failed", "payload": {}}   as the event API takes it

`event` is the value of the header X-GitHub-Event; the event's kind is then `<event>.<action>`.
A line without an id or dedupe key of its own gets one made of its place and content: sending the
same file twice delivers each line once.

Source: SEMANTICS 1.1 `dedupe_key`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

import msgspec

from streams.edge.ingest.body import MalformedBody, parse_body
from streams.edge.ingest.events import EventRequest

__all__ = ["read_deliveries", "read_event"]

_LINE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_GITHUB = "github"
_KEY_BYTES = 12


class _Payload(msgspec.Struct):
    """What of a payload decides its kind."""

    action: str | None = None


def read_event(fields: Mapping[str, object]) -> EventRequest:
    """Make one event of fields as the event API takes them.  Raises MalformedBody."""
    try:
        text = msgspec.json.encode(fields)
    except UnicodeEncodeError:  # headers may hold any bytes
        unsound = [name for name, value in fields.items() if not _is_utf8(value)]
        raise MalformedBody(f"{name}: expected UTF-8" for name in unsound) from None
    return parse_body(text).events[0]


def _is_utf8(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


def read_deliveries(
    lines: Iterable[bytes], *, provider: str | None = None, as_new: bool = False
) -> Iterator[EventRequest]:
    """Read deliveries, one a line; blank lines are passed over.

    Args:    provider: of lines that name none; `github` where they have `event`.
             as_new: give no dedupe keys: each line is a new event every time.
    Raises:  MalformedBody that names the line and everything wrong with it.
    """
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        try:
            yield _read_line(text, number, provider, as_new=as_new)
        except MalformedBody as error:
            raise MalformedBody(f"line {number}: {each}" for each in error.problems) from error


def _read_line(text: bytes, number: int, provider: str | None, *, as_new: bool) -> EventRequest:
    try:
        given = _LINE.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return parse_body(text).events[0]  # says what is wrong
    event = given.pop("event", None)
    fields: dict[str, object] = dict(given)
    if event is not None:
        fields.setdefault("provider", provider or _GITHUB)
        fields.setdefault("kind", _kind(event, given.get("payload")))
        fields.setdefault("headers", {"x-github-event": event})
    elif provider is not None:
        fields.setdefault("provider", provider)
    if not as_new and "dedupe_key" not in fields and "id" not in fields:
        digest = blake2b(text, digest_size=_KEY_BYTES).hexdigest()
        fields["dedupe_key"] = f"line-{number}-{digest}"
    return read_event(fields)


def _kind(event: msgspec.Raw, payload: msgspec.Raw | None) -> object:
    """Return `<event>.<action>`, or the event alone when its payload names no action."""
    try:
        name = msgspec.json.decode(event, type=str)
        action = msgspec.json.decode(payload or b"{}", type=_Payload).action
    except msgspec.DecodeError:
        return event
    return name if action is None else f"{name}.{action}"
