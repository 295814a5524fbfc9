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
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from streams.audit.divergence import Divergence, DivergenceKind
from streams.audit.log import Headers, LogRecord, Place
from streams.audit.spool import Sequence, Spool
from streams.core.record import Position
from topology import Stage

__all__ = ["ENTRY", "Entry", "Lanes", "OutputIndex", "fingerprint"]

ENTRY = struct.Struct(">qIq16s")
"""Offset of the cause, index of the output within its step, own offset, fingerprint."""

Lanes = dict[Place, Sequence]
"""What one stage partition wrote, by output partition."""

STRAYS_KEPT = 100
"""Records that no audited stage can have written: the first ones are told, all are counted."""


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


class OutputIndex:
    """The lanes of the audited stage partitions.

    `strays` are records that claim a fold, but that no stage partition can have written.
    """

    def __init__(
        self,
        spool: Spool,
        declared: Iterable[Stage],
        audited: Mapping[str, frozenset[int]],
        partitions: Mapping[str, int],
    ) -> None:
        """Prepare an index.

        Args: declared: every stage of the topology.  audited: partitions to note, by stage name.
              partitions: partition count of each stage's mailbox, by stage name.
        """
        self._spool = spool
        self._declared = {stage.name: stage for stage in declared}
        self._audited = audited
        self._partitions = partitions
        self._lanes: dict[tuple[str, int], Lanes] = {}
        self.strays: list[Divergence] = []
        self.strays_count = 0
        self.records = 0

    def lanes(self, stage: str, partition: int) -> Lanes:
        """Return what one stage partition wrote."""
        return self._lanes.setdefault((stage, partition), {})

    def scan(self, place: Place, lists: Iterable[list[LogRecord]]) -> None:
        """Note every record of one output partition, which must come in offset order."""
        known: dict[tuple[bytes, bytes], Sequence | str | None] = {}
        for records in lists:
            self.records += len(records)
            for record in records:
                fold, cause = _origin(record.headers)
                if fold is None:
                    continue
                try:
                    prefix, offset, index = cause.rsplit(b"/", 2)
                    target = known.get((fold, prefix), "")
                    if target == "":
                        target = known[fold, prefix] = self._target(place, fold, prefix)
                    if target is None:
                        continue
                    if isinstance(target, str):
                        self._stray(place, record, fold, cause, target)
                        continue
                    digest = fingerprint(record.key, record.value, record.headers)
                    target.add(int(offset), int(index), record.offset, digest)
                except (ValueError, struct.error):
                    self._stray(place, record, fold, cause, "topic/partition/offset/index as cause")

    def _target(self, place: Place, fold: bytes, prefix: bytes) -> Sequence | str | None:
        """Return the lane of an origin; None when it is not audited, a text when it cannot be."""
        name = fold.partition(b"@")[0].decode(errors="replace")
        stage = self._declared.get(name)
        if stage is None:
            return f"the fold of a declared stage ({', '.join(sorted(self._declared))})"
        if name not in self._audited:
            return None
        topic, _, number = prefix.decode(errors="replace").rpartition("/")
        count = self._partitions[name]
        if topic != stage.source or not number.isdecimal() or int(number) >= count:
            return f"a cause in {stage.source}/0 to {stage.source}/{count - 1}"
        if place[0] not in (*stage.sinks, stage.quarantine):
            return f"no output of {name}, which does not write to {place[0]}"
        if int(number) not in self._audited[name]:
            return None
        return self.lanes(name, int(number)).setdefault(place, self._spool.sequence())

    def _stray(
        self, place: Place, record: LogRecord, fold: bytes, cause: bytes, expected: str
    ) -> None:
        self.strays_count += 1
        if len(self.strays) >= STRAYS_KEPT:
            return
        found = f"fold {fold.decode(errors='replace')}, cause {cause.decode(errors='replace')}"
        position = Position(*place, record.offset)
        kind = DivergenceKind.UNEXPECTED_OUTPUT
        self.strays.append(Divergence(kind, position, expected, found))


def _origin(headers: Headers) -> tuple[bytes | None, bytes]:
    """Return the headers `fold` and `cause`; no fold means that an edge wrote the record."""
    if len(headers) > 2 and headers[2][0] == "fold" and headers[1][0] == "cause":
        return headers[2][1], headers[1][1]  # the order in which stages write them
    fold: bytes | None = None
    cause = b""
    for name, content in headers:
        if name == "fold":
            fold = content
        elif name == "cause":
            cause = content
    return fold, cause
