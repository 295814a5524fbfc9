"""An event as one JSON text, and what its payload's text holds.

Senders decide what a payload is: nesting that a parser's own stack may or may not bear, or half a
surrogate pair, must come to the same thing wherever the log is folded.

Source: SEMANTICS 1.1, 3.2; DESIGN law 8.
"""

from __future__ import annotations

import json
import re
from typing import Any

from streams.core.wire import TriggerEvent

PAYLOAD_DEPTH_MAX = 256
"""Arrays and objects within each other: far below what any parser's stack bears."""

SMALL_CHARS_MAX = 4_096
"""Of an event that is written again whenever something about its dispatch changes."""

_NUMBER_BYTES = 10  # of the length before a text, at most

_DECODER = json.JSONDecoder()
_BRACKETS = re.compile(r'[\[{\]}]|"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def payload_of(event: TriggerEvent, /) -> Any:  # noqa: ANN401 - any JSON value
    """Return what an event's payload text holds.

    Raises: ValueError for a text that is no JSON, or nests deeper than PAYLOAD_DEPTH_MAX.
    """
    text = event["provider_payload"]
    if _nests_too_deep(text):
        raise ValueError(f"the payload nests deeper than {PAYLOAD_DEPTH_MAX}")
    try:
        payload, end = _DECODER.raw_decode(text)
    except ValueError:
        return json.loads(text)
    # Space around it, which few have, takes the long way.
    return payload if end == len(text) else json.loads(text)


def _nests_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= PAYLOAD_DEPTH_MAX:
        return False
    depth = 0
    for found in _BRACKETS.finditer(text):
        match found[0]:
            case "[" | "{":
                depth += 1
                if depth > PAYLOAD_DEPTH_MAX:
                    return True
            case "]" | "}":
                depth -= 1
            case _:
                pass  # a text: what looks like a bracket there is none
    return False


def event_json(event: TriggerEvent, /) -> str:
    """Return the event's fields as a JSON object; `provider_payload` is what its text holds.

    Fields that say nothing and the raw body are left out; names are sorted.  It can be written as
    UTF-8 whatever the event holds.
    """
    fields: dict[str, Any] = {
        name: value
        for name, value in event.items()
        if value is not None and name not in ("raw_body", "batch", "provider_payload")
    }
    try:
        fields["provider_payload"] = payload_of(event)
    except ValueError:  # no JSON: somebody wrote the envelope by hand
        fields["provider_payload"] = event["provider_payload"]
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return text


def is_small(event: TriggerEvent, /) -> bool:
    """Whether an event's body and headers are few enough to be kept in its dispatch's own row."""
    size = len(event["provider_payload"]) + len(event["raw_body"] or b"")
    for name, text in event["headers"].items():
        size += len(name) + len(text)
    return size <= SMALL_CHARS_MAX and event["batch"] is None


def batch_bytes(event: TriggerEvent, /) -> int:
    """Return the bytes that an event adds to a batch at most: as its leader, and as a member."""
    headers = event["headers"]
    texts = [value for value in event.values() if isinstance(value, str)]
    texts += [*headers.keys(), *headers.values()]
    own = sum(len(text.encode()) + _NUMBER_BYTES for text in texts) + len(event["raw_body"] or b"")
    members = event["batch"] or (event_json(event),)  # what it replays was a batch itself
    return own + sum(len(text.encode()) + _NUMBER_BYTES for text in members)
