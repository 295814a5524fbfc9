"""What one transaction of the journal must satisfy, besides its outputs and rows.

Each function raises Divergence when it does not.

Source: DESIGN law 6; law 8 and "Failure" for skipped records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.audit.checkpoint import Checkpoint
from streams.audit.divergence import Divergence, DivergenceKind, first_difference
from streams.audit.journal import JournalEntry
from streams.audit.log import LogReader, LogRecord, Place, Span
from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.engine import FoldFailed, Memory, Step, fold_batch
from topology.model import STAGE_SKIP

__all__ = [
    "check_checkpoint",
    "check_records",
    "check_sequence",
    "check_skips",
    "compare_journal",
    "recompute",
]

_HASHES = {"chain", "state_hash"}


def check_sequence(
    entry: JournalEntry, last: JournalEntry | None, mailbox: Place, *, head_lost: bool
) -> None:
    """Transactions are numbered from 1 without gap, and each begins where the last one ended.

    Args: last: the entry before it that was read.  head_lost: whether retention may have taken the
          first entries.
    """
    first_seq = entry.seq if head_lost else 1
    expected_seq = first_seq if last is None else last.seq + 1
    if entry.seq != expected_seq:
        raise Divergence(
            DivergenceKind.JOURNAL_GAP,
            entry.at,
            f"transaction {expected_seq} of {entry.fold}",
            f"transaction {entry.seq}, offsets {entry.first_offset} to {entry.next_offset}",
            cause=str(Position(*mailbox, entry.first_offset)),
        )
    if last is not None and entry.first_offset < last.next_offset:
        expected = f"transaction {entry.seq} to begin at or after offset {last.next_offset}"
        actual = f"one that begins at {entry.first_offset}"
        raise Divergence(DivergenceKind.JOURNAL_CHANGED, entry.at, expected, actual)


def check_checkpoint(checkpoint: Checkpoint, entry: JournalEntry) -> None:
    """A checkpoint is the state that the journal recorded for its transaction."""
    expected = f"the state after transaction {entry.seq}"
    kind = DivergenceKind.CHECKPOINT_CHANGED
    if checkpoint.problem is not None:
        raise Divergence(kind, checkpoint.at, expected, checkpoint.problem)
    found = first_difference(entry.position.as_row(), checkpoint.position.as_row())
    if found is not None:
        field, wanted, actual = found
        raise Divergence(
            kind, checkpoint.at, f"{expected} with {field} = {wanted}", f"{field} = {actual}"
        )


def check_records(raws: list[LogRecord], entry: JournalEntry, mailbox: Place) -> None:
    """The mailbox holds the records that the transaction says it folded, and no other."""
    found = (len(raws), raws[0].offset, raws[-1].offset + 1) if raws else (0, 0, 0)
    if found == (entry.records, entry.first_offset, entry.next_offset):
        return
    at = min(raws[0].offset, entry.first_offset) if raws else entry.first_offset
    raise Divergence(
        DivergenceKind.MAILBOX_CHANGED,
        Position(*mailbox, at),
        f"{entry.records} records, offsets {entry.first_offset} to {entry.next_offset}, "
        f"as transaction {entry.seq} says ({entry.at})",
        f"{found[0]} records, offsets {found[1]} to {found[2]}" if raws else "none of them",
    )


def check_skips(
    reader: LogReader, codec: Codec, stage: str, entry: JournalEntry, mailbox: Place, end: int
) -> None:
    """An operator asked, on the log, for every record and timer that was passed over.

    Args: end: end of the mailbox partition.
    """
    for offset in sorted(entry.skipped):
        position = Position(*mailbox, offset)
        asked = _words(reader, codec, stage, mailbox, Span(offset + 1, end))
        if not any(_named(word) == position and word["timer"] is None for word in asked):
            raise Divergence(
                DivergenceKind.SKIP_UNREQUESTED,
                position,
                f"a {STAGE_SKIP} record for it later in its partition",
                f"none, but transaction {entry.seq} passed over it ({entry.at})",
            )
    for timer in sorted(entry.skipped_timers):
        asked = _words(reader, codec, stage, mailbox, Span(entry.first_offset + 1, end))
        batch = range(entry.first_offset, entry.next_offset)
        if not any(word["timer"] == timer and word["offset"] in batch for word in asked):
            raise Divergence(
                DivergenceKind.SKIP_UNREQUESTED,
                Position(*mailbox, entry.first_offset),
                f"a {STAGE_SKIP} record for the timer of row {timer!r} later in its partition",
                f"none, but transaction {entry.seq} passed over it ({entry.at})",
            )


def _words(
    reader: LogReader, codec: Codec, stage: str, mailbox: Place, span: Span
) -> Iterator[dict[str, Any]]:
    """Yield what operators asked the stage to pass over."""
    for records in reader.read(mailbox, *span):
        for record in records:
            if ("kind", STAGE_SKIP.encode()) not in record.headers:
                continue
            try:
                schema, asked = codec.decode(record.value or b"")
            except DecodeError:
                continue  # its stage quarantines it: nobody acted on it
            if schema == STAGE_SKIP and asked["stage"] == stage:
                yield asked


def _named(asked: dict[str, object]) -> tuple[object, object, object]:
    return asked["topic"], asked["partition"], asked["offset"]


def recompute(memory: Memory, raws: list[LogRecord], entry: JournalEntry, mailbox: Place) -> Step:
    """Fold the transaction's records again; the fold takes them all, in one batch."""
    try:
        step = fold_batch(memory, raws, skips=entry.skipped, timer_skips=entry.skipped_timers)
    except FoldFailed as error:
        raise Divergence(
            DivergenceKind.FOLD_RAISED,
            Position(*mailbox, error.offset),
            f"what transaction {entry.seq} made of it ({entry.at})",
            f"a fold that raises {type(error.__cause__).__name__}",
        ) from error
    if step.records != len(raws):
        raise Divergence(
            DivergenceKind.JOURNAL_CHANGED,
            entry.at,
            f"a transaction of {step.records} records, which fill it",
            f"one of {entry.records}",
        )
    return step


def compare_journal(codec: Codec, step: Step, entry: JournalEntry, mailbox: Place) -> None:
    """The entry says what was recomputed; its hash chain covers inputs, outputs and rows."""
    if step.journal == entry.raw:
        return
    found = first_difference(codec.decode(step.journal)[1], codec.decode(entry.raw)[1])
    if found is None:
        return  # another release wrote the same values under an older schema
    field, wanted, actual = found
    note = "its outputs are right: a mailbox record, a row or the journal itself was changed"
    raise Divergence(
        DivergenceKind.CHAIN_BROKEN if field in _HASHES else DivergenceKind.JOURNAL_CHANGED,
        entry.at,
        f"transaction {entry.seq} with {field} = {wanted}",
        f"{field} = {actual}",
        cause=str(Position(*mailbox, entry.first_offset)),
        note=note if field in _HASHES else None,
    )
