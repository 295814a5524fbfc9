"""Records in, outputs out: the two values that every fold is written against.

A `Record` is one decoded entry of a mailbox partition.  An `Output` is a record that a fold asks to
append; the engine encodes it, adds the headers `kind`, `cause` and `fold`, and commits it with the
batch.

Source: DESIGN "The one idea", laws 1-6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Value = Mapping[str, Any]
"""A decoded Avro record.  The `TypedDict`s of `streams.core.wire` describe each schema."""


class Position(NamedTuple):
    """Where a record stands: topic, partition, offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """`topic/partition/offset`, as logs, headers and commands spell it."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read `topic/partition/offset`; ValueError says what is wrong."""
        parts = text.rsplit("/", 2)
        if len(parts) != 3 or not parts[0] or not parts[1].isdigit() or not parts[2].isdigit():
            raise ValueError(
                f"position {text!r}: expected topic/partition/offset, such as trigger.outbox/3/1042"
            )
        return cls(parts[0], int(parts[1]), int(parts[2]))


class Record(NamedTuple):
    """One decoded entry of a mailbox partition.

    `timestamp_ms` is the broker's append time; `value` the decoded body; `headers` those besides
    kind, cause and fold.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    kind: str
    value: Any
    headers: Mapping[str, str]

    @property
    def position(self) -> Position:
        """The record's own position, and so the `cause` of what is derived from it."""
        return Position(self.topic, self.partition, self.offset)


class Output(NamedTuple):
    """A record that a fold asks to append.

    `partition` is explicit where the receiver's home is known, otherwise the key decides (murmur2).
    A `value` of None removes the key from a compacted topic.
    `headers` are the extra ones, for example `tenant_id` and `traceparent`, sorted by name.
    """

    topic: str
    kind: str
    key: str
    value: Value | None
    partition: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Rejection(NamedTuple):
    """A fold's word that a record is unusable; the engine quarantines the record with it."""

    code: str
    reason: str
