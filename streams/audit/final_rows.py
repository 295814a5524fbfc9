"""Compares the last record of every key in a changelog with the recomputed state.

This is the proof that compaction leaves possible: it may remove what a later record replaces, so
the last records are what must be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from streams.audit.divergence import Divergence, DivergenceKind
from streams.audit.log import LogRecord, Place
from streams.core.record import Position
from streams.engine import POSITION_KEY, Store

__all__ = ["FinalRows", "Written"]


class Written(NamedTuple):
    """A row that was not found: the transaction that wrote it, and the offset where it was due."""

    seq: int
    offset: int


class _Last(NamedTuple):
    offset: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class FinalRows:
    """What a changelog partition must lead to.

    `final` is the state after transaction `seq`; `absent` the rows that were not found where they
    were due, by key.
    """

    place: Place
    final: Store
    seq: int
    absent: Mapping[bytes, Written]

    def check(self, records: Iterable[LogRecord], seq_of: Callable[[LogRecord], int]) -> None:
        """Raise Divergence unless the changelog leads to `final`.

        Args:    records: the whole changelog partition.  seq_of: reads a position row.
        Cost:    O(rows) memory: a key and 16 bytes each.
        """
        last, beyond = self._last_records(records, seq_of)
        for key, found in last.items():
            value = self.final.get(key)
            if key not in beyond and (value is None or _digest(value) != found.digest):
                raise self._outdated(key, found, deleted=value is None)
        for row in self.final.items():
            key = row[0]
            if key not in last and key not in beyond:
                written = self.absent.get(key, Written(self.seq, 0))
                raise self._missing(key, written, "no record of it")

    def _last_records(
        self, records: Iterable[LogRecord], seq_of: Callable[[LogRecord], int]
    ) -> tuple[dict[bytes, _Last], set[bytes]]:
        """Return each row's last record up to transaction `seq`, and the keys written after it."""
        last: dict[bytes, _Last] = {}
        beyond: set[bytes] = set()
        group: dict[bytes, _Last | None] = {}
        for record in records:
            key = record.key or b""
            if key != POSITION_KEY:
                value = record.value
                group[key] = None if value is None else _Last(record.offset, _digest(value))
                continue
            if seq_of(record) > self.seq:
                beyond.update(group)
            else:
                for row_key, found in group.items():
                    last.pop(row_key, None)
                    if found is not None:
                        last[row_key] = found
            group = {}
        return last, beyond

    def _outdated(self, key: bytes, found: _Last, *, deleted: bool) -> Divergence:
        written = self.absent.get(key)
        if written is not None and not deleted:
            return self._missing(key, written, f"only an older one at offset {found.offset}")
        state = "to be deleted" if deleted else "as it stood"
        kind = DivergenceKind.UNEXPECTED_ROW if deleted else DivergenceKind.DIFFERENT_ROW
        return Divergence(
            kind,
            Position(*self.place, found.offset),
            f"row {_name(key)} {state} after transaction {self.seq}",
            "other content, and no later record of the row",
        )

    def _missing(self, key: bytes, written: Written, actual: str) -> Divergence:
        return Divergence(
            DivergenceKind.MISSING_ROW,
            Position(*self.place, written.offset),
            f"row {_name(key)} as transaction {written.seq} wrote it",
            actual,
        )


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=16).digest()


def _name(key: bytes) -> str:
    return repr(key.decode(errors="backslashreplace"))
