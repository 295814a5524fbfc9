"""The journal of one stage partition: what each transaction said that it did.

Source: DESIGN law 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streams.audit.divergence import Divergence, DivergenceKind
from streams.audit.log import LogReader, LogRecord, Place, Span
from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.engine import StatePosition
from topology import TopicRole, Topology

__all__ = ["JournalEntry", "journal_key", "journal_topic", "read_journal"]


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One `journal_entry` record: where it lies, its bytes, and what it says."""

    at: Position
    raw: bytes
    fold: str
    first_offset: int
    records: int
    skipped: frozenset[int]
    skipped_timers: frozenset[str]
    position: StatePosition

    @property
    def seq(self) -> int:
        """Number of the transaction."""
        return self.position.seq

    @property
    def next_offset(self) -> int:
        """Mailbox offset after the last record that the transaction folded."""
        return self.position.next_offset


def journal_topic(topology: Topology) -> str:
    """Return the name of the journal."""
    return next(topic.name for topic in topology.topics if topic.role is TopicRole.JOURNAL)


def journal_key(stage: str, partition: int) -> bytes:
    """Return the key under which a stage partition writes its entries and its checkpoints."""
    return f"{stage}/{partition}".encode()


def read_journal(
    reader: LogReader, codec: Codec, place: Place, span: Span, key: bytes
) -> Iterator[JournalEntry]:
    """Yield the entries of one stage partition, in log order.

    Args:   place: journal partition.  span: what to read of it.  key: see `journal_key`.
    Raises: Divergence for an entry that cannot be read, or that speaks of another partition.
    """
    for records in reader.read(place, *span):
        for record in records:
            if record.key == key:
                yield _entry(codec, Position(*place, record.offset), record, key)


def _entry(codec: Codec, at: Position, record: LogRecord, key: bytes) -> JournalEntry:
    raw = record.value or b""
    try:
        schema, said = codec.decode(raw)
    except DecodeError as error:
        raise _unreadable(at, f"bytes that do not decode ({error.code})") from error
    if schema != "journal_entry":
        raise _unreadable(at, schema)
    if journal_key(said["stage"], said["partition"]) != key:
        raise _unreadable(
            at, f"one of {said['stage']}/{said['partition']} under key {key.decode()}"
        )
    return _read(at, raw, said)


def _read(at: Position, raw: bytes, said: dict[str, Any]) -> JournalEntry:
    return JournalEntry(
        at=at,
        raw=raw,
        fold=said["fold"],
        first_offset=said["first_offset"],
        records=said["records"],
        skipped=frozenset(said["skipped"]),
        skipped_timers=frozenset(said["skipped_timers"]),
        position=StatePosition.from_row(said),
    )


def _unreadable(at: Position, actual: str) -> Divergence:
    return Divergence(DivergenceKind.JOURNAL_CHANGED, at, "a journal_entry", actual)
