"""CloudEvents 1.0 over HTTP as events: structured, in batches, and binary.

| attribute | becomes |
|---|---|
| `type` | the event's kind |
| `source` and `id` | its delivery id, `<source> <id>`: the two together are unique |
| `time` | `occurred_at` |
| `data` | the payload; `data_base64`, and binary data that is no JSON, `raw_body` |
| extension `harnprovider` | the provider, `webhook` without it |
| extension `harntenant` | `tenant_id` |
| every attribute | the header `ce-<name>`; `datacontenttype` is `content-type` |

Source: CloudEvents 1.0.2, "Required attributes", "Extension context attributes"; its JSON event
format and HTTP protocol binding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from streams.edge.ingest.body import EVENTS_MAX, Body, MalformedBody
from streams.edge.ingest.deliveries import read_event
from streams.edge.ingest.events import EventRequest, explain_json

__all__ = ["BATCH", "STRUCTURED", "is_binary", "parse_binary", "parse_structured"]

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"

_PREFIX = "ce-"
_PROVIDER = "webhook"
_REQUIRED = ("specversion", "id", "source", "type")
_TEXTS = frozenset({*_REQUIRED, "time", "subject", "dataschema", "datacontenttype"})
_NAME = re.compile(r"[a-z0-9]{1,50}")
_JSON_TYPE = re.compile(r"[a-z]+/(?:[\w.-]+\+)?json\s*(?:;.*)?", re.IGNORECASE)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_SPELLED = {"kind": "type", "dedupe_key": "source and id", "occurred_at": "time"}


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether a request says in its headers what its event is."""
    return f"{_PREFIX}specversion" in headers or f"{_PREFIX}id" in headers


def parse_structured(text: bytes, content_type: str) -> Body:
    """Read an event, or a batch of them.  Raises MalformedBody that lists everything wrong."""
    try:
        text.decode()
        if content_type != BATCH:
            return Body([_of_object(text)], is_batch=False)
        elements = _ARRAY.decode(text)
    except UnicodeDecodeError as error:
        raise MalformedBody([f"the body is not UTF-8 at byte {error.start}"]) from error
    except msgspec.ValidationError as error:
        raise MalformedBody(["the body is no array, expected a batch of events"]) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedBody([f"the body {explain_json(text, error)}"]) from error
    if not 1 <= len(elements) <= EVENTS_MAX:
        count = f"the body has {len(elements)} events, expected 1 to {EVENTS_MAX}"
        raise MalformedBody([count])
    events: list[EventRequest] = []
    problems: list[str] = []
    for index, element in enumerate(elements):
        try:
            events.append(_of_object(bytes(element)))
        except MalformedBody as error:
            problems += [f"[{index}].{each}" for each in error.problems]
    if problems:
        raise MalformedBody(problems)
    return Body(events, is_batch=True)


def parse_binary(headers: Mapping[str, str], body: bytes) -> Body:
    """Read an event whose attributes are headers.  Raises MalformedBody."""
    attributes: dict[str, str] = {}
    problems: list[str] = []
    for name, value in headers.items():
        lowered = name.lower()
        if lowered.startswith(_PREFIX):
            try:
                attributes[lowered.removeprefix(_PREFIX)] = unquote(value, errors="strict")
            except UnicodeDecodeError:
                problems.append(f"{lowered}: expected UTF-8, percent-encoded")
    content_type = headers.get("Content-Type", "")
    fields: dict[str, Any] = {}
    if _JSON_TYPE.fullmatch(content_type) and body:
        problem = _json_problem(body)
        problems += [] if problem is None else [f"the body {problem}"]
        fields["payload"] = msgspec.Raw(body)
    elif body:
        fields["raw_body"] = body
    if content_type:
        attributes["datacontenttype"] = content_type
    return Body([_event(attributes, fields, problems)], is_batch=False)


def _json_problem(text: bytes) -> str | None:
    try:
        text.decode()
        msgspec.json.decode(text, type=msgspec.Raw)
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}"
    except (msgspec.DecodeError, RecursionError) as error:
        return explain_json(text, error)
    return None


def _of_object(text: bytes) -> EventRequest:
    try:
        given = _OBJECT.decode(text)
    except msgspec.ValidationError as error:
        raise MalformedBody(["the event is no object"]) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedBody([f"the body {explain_json(text, error)}"]) from error
    problems: list[str] = []
    fields: dict[str, Any] = {}
    data, encoded = given.pop("data", None), given.pop("data_base64", None)
    if data is not None:
        fields["payload"] = data
    if encoded is not None:
        if data is not None:
            problems.append("data_base64: expected either it or data")
        try:
            fields["raw_body"] = msgspec.json.decode(encoded, type=bytes | None)
        except msgspec.DecodeError:
            problems.append("data_base64: expected base64")
    attributes: dict[str, str] = {}
    for name, raw in given.items():
        value = _attribute(name, raw, problems)
        if value is not None:
            attributes[name] = value
    return _event(attributes, fields, problems)


def _attribute(name: str, raw: msgspec.Raw, problems: list[str]) -> str | None:
    """Return an attribute as text, as the binary mode spells it; null is as if it were absent."""
    try:
        value: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        value = b""
    match value:
        case None:
            return None
        case str():
            return value
        case _ if name in _TEXTS:
            problems.append(f"{name}: expected text")
            return None
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case _:
            problems.append(f"{name[:50]}: expected text, a whole number, true or false")
            return None


def _event(
    attributes: Mapping[str, str], fields: dict[str, Any], problems: list[str]
) -> EventRequest:
    """Return the event of these attributes and this data; `problems` are those of its reading."""
    told = {problem.partition(":")[0] for problem in problems}
    problems += [
        f"{name} is missing, expected text"
        for name in _REQUIRED
        if not attributes.get(name) and name not in told
    ]
    version = attributes.get("specversion", "1.0")
    if version != "1.0":
        problems.append(f"specversion is {version[:20]!r}, expected '1.0'")
    problems += [
        f"{name[:50]!r} is no attribute's name: expected lower-case letters and digits"
        for name in attributes
        if _NAME.fullmatch(name) is None
    ]
    if problems:
        raise MalformedBody(problems)
    headers = {f"{_PREFIX}{name}": value for name, value in sorted(attributes.items())}
    content_type = headers.pop(f"{_PREFIX}datacontenttype", None)
    if content_type is not None:
        headers["content-type"] = content_type
    try:
        return read_event(
            {
                "provider": attributes.get("harnprovider", _PROVIDER),
                "kind": attributes["type"],
                "dedupe_key": f"{attributes['source']} {attributes['id']}",
                "occurred_at": attributes.get("time"),
                "tenant_id": attributes.get("harntenant"),
                "headers": headers,
                **fields,
            }
        )
    except MalformedBody as error:
        raise MalformedBody(_respelled(each) for each in error.problems) from error


def _respelled(problem: str) -> str:
    """Return a problem of an event's field under its attribute's name."""
    name, colon, rest = problem.partition(":")
    return f"{_SPELLED.get(name, name)}{colon}{rest}"
