"""What stages wrote, noted per stage partition: one pass over every output partition.

Each record that names a fold is noted as (cause, offset, fingerprint) in the lane of the stage
partition that its cause names.  A stage partition has one transactional producer, so within one
output partition its records lie in the order in which the fold gave them: a lane is a sequence to
compare, not a set to search.

Source: DESIGN law 6 (`cause`, `fold`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from streams.audit.divergence import Divergence, DivergenceKind
from streams.audit.log import Headers, LogRecord, Place
from streams.audit.spool import Sequence, Spool, Stored
from streams.core.record import Position
from topology import Stage

__all__ = ["ENTRY", "Entry", "Lanes", "Noted", "Writers", "fingerprint", "note_outputs"]

ENTRY = struct.Struct(">qIq16s")
"""Offset of the cause, index of the output within its step, own offset, fingerprint."""

Lanes = dict[Place, Stored]
"""What one stage partition wrote, by output partition."""

STRAYS_KEPT = 100
"""Strays of one partition that are told one by one; all are counted."""


class Entry(NamedTuple):
    """A noted output."""

    cause_offset: int
    index: int
    offset: int
    fingerprint: bytes

    @property
    def cause(self) -> tuple[int, int]:
        """Mailbox offset and index: what is the same for two copies of one output."""
        return self.cause_offset, self.index


_pack = msgspec.msgpack.Encoder().encode


def fingerprint(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Hash all that a producer decides about a record besides where it goes: 16 bytes."""
    return blake2b(_pack((key, value, headers)), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Writers:
    """Whose outputs are noted.

    `declared` are all stages there are and `writes` the topics of each; `audited` the partitions to
    note and `partitions` how many the mailbox has, by stage name.  Into `shared` topics edges or
    anybody else may write as well.
    """

    declared: Mapping[str, Stage]
    writes: Mapping[str, frozenset[str]]
    audited: Mapping[str, frozenset[int]]
    partitions: Mapping[str, int]
    shared: frozenset[str] = frozenset()


@dataclass(slots=True)
class Noted:
    """What one output partition holds, by (stage, partition).

    `strays` are records that no stage partition can have written, where only stages write.
    """

    place: Place
    lanes: dict[tuple[str, int], Stored] = field(default_factory=dict[tuple[str, int], Stored])
    strays: list[Divergence] = field(default_factory=list[Divergence])
    strays_count: int = 0
    records: int = 0


def note_outputs(
    writers: Writers, place: Place, lists: Iterable[list[LogRecord]], spool: Spool
) -> Noted:
    """Note every record of one output partition; they must come in offset order."""
    pass_ = _Pass(writers, place, spool)
    for records in lists:
        pass_.take(records)
    noted = pass_.noted
    noted.lanes = {writer: lane.stored() for writer, lane in pass_.lanes.items()}
    return noted


class _Pass:
    """One pass over an output partition."""

    def __init__(self, writers: Writers, place: Place, spool: Spool) -> None:
        self._writers = writers
        self._place = place
        self._spool = spool
        self._known: dict[tuple[bytes, bytes], Sequence | str | None] = {}
        self.lanes: dict[tuple[str, int], Sequence] = {}
        self.noted = Noted(place)

    def take(self, records: list[LogRecord]) -> None:
        """Note the next records."""
        known, shared = self._known, self._place[0] in self._writers.shared
        self.noted.records += len(records)
        for record in records:
            fold, cause = _origin(record.headers)
            if fold is None:
                if not shared:
                    self._stray(record, b"", cause, "the output of a fold: no edge writes here")
                continue
            try:
                prefix, offset, index = cause.rsplit(b"/", 2)
                lane = known.get((fold, prefix), "")
                if lane == "":
                    lane = known[fold, prefix] = self._lane(fold, prefix)
                if lane is None:
                    continue
                if isinstance(lane, str):
                    self._stray(record, fold, cause, lane)
                    continue
                digest = fingerprint(record.key, record.value, record.headers)
                lane.add(int(offset), int(index), record.offset, digest)
            except (ValueError, struct.error):
                self._stray(record, fold, cause, "topic/partition/offset/index as cause")

    def _lane(self, fold: bytes, prefix: bytes) -> Sequence | str | None:
        """Return the lane of an origin; None when it is not audited, a text when it cannot be."""
        writers = self._writers
        name = fold.partition(b"@")[0].decode(errors="replace")
        stage = writers.declared.get(name)
        if stage is None:
            return f"the fold of a declared stage ({', '.join(sorted(writers.declared))})"
        if name not in writers.audited:
            return None
        topic, _, number = prefix.decode(errors="replace").rpartition("/")
        count = writers.partitions[name]
        if topic != stage.source or not number.isdecimal() or int(number) >= count:
            return f"a cause in {stage.source}/0 to {stage.source}/{count - 1}"
        if self._place[0] not in writers.writes[name]:
            return f"no output of {name}, which does not write to {self._place[0]}"
        if int(number) not in writers.audited[name]:
            return None
        return self.lanes.setdefault((name, int(number)), self._spool.sequence())

    def _stray(self, record: LogRecord, fold: bytes, cause: bytes, expected: str) -> None:
        noted = self.noted
        noted.strays_count += 1
        if len(noted.strays) >= STRAYS_KEPT:
            return
        named = f"fold {fold.decode(errors='replace')}" if fold else "no fold"
        found = f"{named}, cause {cause.decode(errors='replace')}"
        position = Position(*self._place, record.offset)
        kind = DivergenceKind.UNEXPECTED_OUTPUT
        noted.strays.append(Divergence(kind, position, expected, found))


def _origin(headers: Headers) -> tuple[bytes | None, bytes]:
    """Return the headers `fold` and `cause`; no fold means that no stage wrote the record."""
    if len(headers) > 2 and headers[2][0] == "fold" and headers[1][0] == "cause":
        return headers[2][1] or b"", headers[1][1] or b""  # the order in which stages write them
    fold: bytes | None = None
    cause = b""
    for name, content in headers:
        if name == "fold":
            fold = content or b""
        elif name == "cause":
            cause = content or b""
    return fold, cause
