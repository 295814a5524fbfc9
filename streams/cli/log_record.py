"""One record as a person or a program reads it: decoded, or shown as what it is.

    2026-11-28T00:33:09.123Z trigger.outbox/3/1042 dispatch_succeeded key=trigger_evt_… {...}

Bytes inside a value are shown as hex.  What no codec can read is not hidden: its first bytes, its
size and why it cannot be read are shown with its position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec
from rich.text import Text

from streams.cli.plain import plain
from streams.codec import Codec, DecodeError
from streams.core.clock import rfc3339
from streams.core.record import Position
from streams.edge.topic_reader import ReadRecord
from streams.expression_names import Seen

__all__ = ["SEEN", "ShownRecord", "show_record"]

SEEN: Final[Seen] = dict.fromkeys(
    (
        *("topic", "partition", "offset", "position", "timestamp_ms", "kind", "schema", "key"),
        *("headers", "value", "undecodable", "payload"),
    )
)
"""What `--where` sees: a document, and the payload of its event."""

_HEAD_BYTES = 32
_EVENT_ID_FIELDS = ("event_id", "first_event_id", "replay_of_event_id")

_encode = msgspec.json.Encoder(order="deterministic").encode


class ShownRecord(NamedTuple):
    """A record ready to be filtered and printed.

    `value` is None for a tombstone and for what cannot be decoded; `undecodable` then says why.
    """

    position: Position
    timestamp_ms: int
    kind: str
    schema: str
    key: str
    headers: Mapping[str, str]
    value: Mapping[str, Any] | None
    undecodable: Mapping[str, Any] | None

    @property
    def event_ids(self) -> frozenset[str]:
        """Return the ids of the events that the record is about."""
        value = self.value or {}
        ids = {value.get(name) for name in _EVENT_ID_FIELDS}
        event = value.get("event")
        if isinstance(event, Mapping):
            ids.add(cast("Mapping[str, Any]", event).get("id"))
        return frozenset(each for each in ids if isinstance(each, str))

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints and `--where` is evaluated over."""
        shown: dict[str, Any] = {
            "topic": self.position.topic,
            "partition": self.position.partition,
            "offset": self.position.offset,
            "position": str(self.position),
            "timestamp_ms": self.timestamp_ms,
            "kind": self.kind,
            "schema": self.schema,
            "key": self.key,
            "headers": dict(self.headers),
            "value": self.value,
        }
        if self.undecodable is not None:
            shown["undecodable"] = self.undecodable
        return shown

    def line(self) -> Text:
        """Return the record as one line for a person."""
        text = Text(rfc3339(self.timestamp_ms), style="dim")
        text.append(f" {self.position}", style="cyan")
        text.append(f" {plain(self.kind) or '-'}", style="bold")
        text.append(f" key={self.key or '-'}", style="dim")
        extra = {name: each for name, each in self.headers.items() if name not in _USUAL_HEADERS}
        for name, each in extra.items():
            text.append(plain(f" {name}={each}"), style="dim")
        if self.undecodable is not None:
            reason = self.undecodable
            text.append(f" undecodable: {reason['reason']}", style="red")
            text.append(f" ({reason['size']} bytes, first {reason['head']})")
        elif self.value is None:
            text.append(" tombstone", style="yellow")
        else:
            text.append(plain(f" {_encode(self.value).decode()}"))
        return text


_USUAL_HEADERS = frozenset({"kind", "cause", "fold", "traceparent"})


def show_record(record: ReadRecord, topic: str, codec: Codec) -> ShownRecord:
    """Decode a record for showing.  Raises only what a schema registry raises when it is down."""
    value: Mapping[str, Any] | None = None
    schema = ""
    undecodable: dict[str, Any] | None = None
    if record.value is not None:
        try:
            schema, decoded = codec.decode(record.value)
            value = {name: _plain(each) for name, each in decoded.items()}
        except DecodeError as error:
            head = record.value[:_HEAD_BYTES].hex()
            undecodable = {"reason": str(error), "size": len(record.value), "head": head}
    headers = {name: content.decode(errors="replace") for name, content in record.headers}
    return ShownRecord(
        position=Position(topic, record.partition, record.offset),
        timestamp_ms=record.timestamp,
        kind=headers.get("kind") or schema,
        schema=schema,
        key=_key(record.key),
        headers=headers,
        value=value,
        undecodable=undecodable,
    )


def _key(key: bytes | None) -> str:
    """Return a key as text; control characters, which only our own keys have, are escaped."""
    return plain((key or b"").decode(errors="backslashreplace"))


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever Avro can say
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[Any]", value)]
    return value
