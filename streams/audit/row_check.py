"""Compares a changelog partition with the rows that the recomputation gives, batch by batch.

A transaction ends with the reserved position row, so the changelog is a sequence of groups: rows,
then the position that they lead to.  Compaction removes rows and positions that a later record
replaces; what is left keeps its order.

| group ends with | means | must hold |
|---|---|---|
| the position of this batch | its rows, perhaps fewer | each row equal, in order; nothing else |
| the position of a later batch | compaction merged groups | whatever is there, equal and in order |
| no position | cut off | never: a transaction is there in full or not at all |

A row that is not there must have a later record: at the end the last record of every key is
compared with the recomputed state, unless every batch was found complete, which proves the same.

Source: DESIGN "The stage runtime" (state), "Proof"; FINDINGS 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streams.audit.divergence import Divergence, DivergenceKind, shown
from streams.audit.final_rows import FinalRows, Written
from streams.audit.log import LogReader, LogRecord, Place, Span
from streams.audit.output_diagnosis import differing_value
from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.engine import POSITION_KEY, Step, Store

__all__ = ["RowCheck"]


class _Group(NamedTuple):
    """Rows that lie between two position rows, and the second of these."""

    rows: list[LogRecord]
    end: LogRecord
    seq: int


class RowCheck:
    """The changelog of one stage partition; methods raise Divergence at the first difference."""

    def __init__(self, reader: LogReader, codec: Codec, place: Place, span: Span) -> None:
        self._reader = reader
        self._codec = codec
        self._place = place
        self._span = span
        self._groups = self._read_groups()
        self._group: _Group | None = None
        self._at = 0
        self._absent: dict[bytes, Written] = {}
        self._complete = True
        self.rows = 0

    def begin(self, seq: int, rows: Store | None) -> None:
        """Pass over the groups up to transaction `seq`; its state is `rows`, None the empty one."""
        self._complete = rows is None
        last = 0
        group = self._group or self._next_group()
        while group is not None and group.seq <= seq:
            last = group.seq
            group = self._next_group()
        if group is None or rows is None:
            return
        if last != seq:
            # Compaction merged groups across the beginning: rows that were there then say nothing.
            kept = [row for row in group.rows if rows.get(row.key or b"") != row.value]
            self._group = group._replace(rows=kept)

    def compare(self, step: Step) -> None:
        """Compare the rows of the next batch, and the position that ends it."""
        seq = step.position.seq
        group = self._group
        if group is not None and group.seq < seq:
            group = self._next_group()
            if group is not None and group.seq < seq:
                raise self._out_of_order(group, seq)
        found = [] if group is None else group.rows
        end = self._span.end if group is None else group.end.offset
        at = self._at
        for key, value in step.rows:
            if at < len(found) and found[at].key == key and found[at].value == value:
                at += 1
                self._absent.pop(key, None)
            else:
                due = found[at].offset if at < len(found) else end
                self._note_absent(key, value, Written(seq, due))
        self._at = at
        if group is not None and group.seq == seq:
            if at < len(found):
                raise self._unmatched(found[at], step)
            self._compare_position(group.end, step)
        self.rows += len(step.rows)

    def finish(self, final: Store, seq: int, witnessed_seq: int) -> None:
        """Judge what is left: nothing beyond what transactions wrote, nothing missing in the end.

        Args: final: the recomputed state after transaction `seq`.
              witnessed_seq: the last transaction that is known to have ended by now.
        """
        self._check_beyond(seq, witnessed_seq)
        if not self._absent and self._complete:
            return
        known = FinalRows(self._place, final, seq, self._absent)
        known.check(self._records(), self._seq_of)

    # ------------------------------------------------------------------ groups
    def _records(self) -> Iterator[LogRecord]:
        for records in self._reader.read(self._place, *self._span):
            yield from records

    def _read_groups(self) -> Iterator[_Group]:
        rows: list[LogRecord] = []
        for record in self._records():
            if record.key == POSITION_KEY:
                yield _Group(rows, record, self._seq_of(record))
                rows = []
            else:
                rows.append(record)
        if rows:
            raise Divergence(
                DivergenceKind.UNEXPECTED_ROW,
                Position(*self._place, rows[0].offset),
                "a position row after the rows of a transaction",
                f"{len(rows)} rows, then the end",
            )

    def _next_group(self) -> _Group | None:
        self._group = next(self._groups, None)
        self._at = 0
        return self._group

    def _seq_of(self, record: LogRecord) -> int:
        try:
            schema, row = self._codec.decode(record.value or b"")
        except DecodeError as error:
            schema, row = f"bytes that do not decode ({error.code})", {}
        if schema != "row_position":
            position = Position(*self._place, record.offset)
            raise Divergence(DivergenceKind.DIFFERENT_ROW, position, "a row_position", schema)
        return row["seq"]

    # ------------------------------------------------------------------ differences
    def _note_absent(self, key: bytes, value: bytes | None, written: Written) -> None:
        self._complete = False
        if value is None:
            self._absent.pop(key, None)
        else:
            self._absent[key] = written

    def _compare_position(self, record: LogRecord, step: Step) -> None:
        if record.value == step.position_row:
            return
        field, wanted, found = differing_value(self._codec, step.position_row, record.value)
        raise Divergence(
            DivergenceKind.DIFFERENT_ROW,
            Position(*self._place, record.offset),
            f"the position row of transaction {step.position.seq} with {field} = {wanted}",
            f"{field} = {found}",
        )

    def _out_of_order(self, group: _Group, seq: int) -> Divergence:
        return Divergence(
            DivergenceKind.UNEXPECTED_ROW,
            Position(*self._place, group.end.offset),
            f"the position row of transaction {seq}",
            f"that of transaction {group.seq}",
        )

    def _unmatched(self, record: LogRecord, step: Step) -> Divergence:
        """Name a row that is not what the batch wrote next."""
        key, seq = record.key or b"", step.position.seq
        position = Position(*self._place, record.offset)
        wanted = dict(step.rows)
        if key not in wanted:
            return Divergence(
                DivergenceKind.UNEXPECTED_ROW,
                position,
                f"no row {_name(key)} in transaction {seq}",
                _row(record.value),
            )
        if wanted[key] == record.value:
            return Divergence(
                DivergenceKind.OUT_OF_ORDER,
                position,
                f"the rows of transaction {seq} in the order of the fold",
                f"row {_name(key)} out of it",
            )
        field, one, other = differing_value(self._codec, wanted[key], record.value)
        return Divergence(
            DivergenceKind.DIFFERENT_ROW,
            position,
            f"row {_name(key)} of transaction {seq} with {field} = {one}",
            f"{field} = {other}",
        )

    def _check_beyond(self, seq: int, witnessed_seq: int) -> None:
        """Groups after the last judged batch belong to transactions that ended meanwhile."""
        last = 0 if self._group is None else self._group.seq
        if last <= seq:
            self._next_group()
        if self._group is None and last < seq:
            raise Divergence(
                DivergenceKind.MISSING_ROW,
                Position(*self._place, self._span.end),
                f"the position row of transaction {seq}",
                f"that of transaction {last} as the last" if last else "no position row",
            )
        last = seq
        while (group := self._group) is not None:
            if group.seq <= last or group.seq > witnessed_seq:
                raise Divergence(
                    DivergenceKind.UNEXPECTED_ROW,
                    Position(*self._place, group.end.offset),
                    f"at most the position row of transaction {witnessed_seq}, each one once",
                    f"that of transaction {group.seq}",
                )
            last = group.seq
            self._next_group()


def _name(key: bytes) -> str:
    return repr(key.decode(errors="backslashreplace"))


def _row(value: bytes | None) -> str:
    return "a deletion" if value is None else shown(value)
