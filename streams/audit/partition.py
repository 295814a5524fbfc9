"""Judges one stage partition: recomputes each transaction of its journal and compares everything.

The journal says where batches were cut; each batch is folded again from the mailbox and compared in
this order: its records, every output, the journal entry (and with it the hash chain), every row.
The first difference ends the partition's audit.

| state before a transaction | how judging goes on |
|---|---|
| known, the fold's version as well | it is recomputed |
| known, the fold's version is not | unjudged, until a checkpoint gives a later state |
| unknown | passed over, until a checkpoint gives it |

Source: DESIGN law 6, "Proof".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streams.audit import transaction_check as check
from streams.audit.checkpoint import Checkpoint, load_rows
from streams.audit.divergence import Divergence, DivergenceKind
from streams.audit.journal import JournalEntry
from streams.audit.log import Cursor, LogReader, LogRecord, Place, Span
from streams.audit.output_check import OutputCheck
from streams.audit.row_check import RowCheck
from streams.audit.verdict import Judged, Unjudged, Verdict
from streams.core.record import Position
from streams.engine import START, BoundStage, Memory, MemoryStore, settle

__all__ = ["Evidence", "PartitionAudit"]

_AGREES = "the journal agrees with the recomputation: the output is not what was committed"
_DISAGREES = "the journal does not agree with the recomputation either"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the log holds of one stage partition.

    `entries` are its journal entries; those at or after journal offset `judged_end` only witness
    that later transactions ended.  `checkpoints` are in log order.  `committed` is the group's
    offset as it was before anything else was read.  Judging begins with transaction `first_seq` at
    the earliest.
    """

    mailbox: Place
    mailbox_span: Span
    entries: Iterator[JournalEntry]
    journal_start: int
    judged_end: int
    checkpoints: list[Checkpoint]
    committed: int | None
    first_seq: int = 1


class PartitionAudit:
    """The audit of one stage partition."""

    def __init__(
        self,
        reader: LogReader,
        stage: BoundStage,
        folds: Mapping[str, BoundStage],
        evidence: Evidence,
        outputs: OutputCheck,
        rows: RowCheck,
    ) -> None:
        """Prepare to judge.

        Args: folds: the stage under every fold version that is known, by fold id.
        """
        self._reader = reader
        self._stage = stage
        self._folds = folds
        self._evidence = evidence
        self._outputs = outputs
        self._rows = rows
        self._checkpoints: dict[int, list[Checkpoint]] = {}
        self._memory: Memory | None = None
        self._cursor = Cursor(iter(()))
        self._last: JournalEntry | None = None
        self._committed_seen = False
        self._head: Unjudged | None = None
        topic, partition = evidence.mailbox
        name = stage.declaration.name
        self.verdict = Verdict(name, topic, partition, evidence.mailbox_span.end)

    def run(self) -> Verdict:
        """Judge every transaction; the first divergence ends it and becomes part of the verdict."""
        verdict = self.verdict
        try:
            self._judge()
        except Divergence as divergence:
            verdict.divergence = divergence
        verdict.outputs, verdict.rows = self._outputs.outputs, self._rows.rows
        return verdict

    def _judge(self) -> None:
        evidence = self._evidence
        for checkpoint in evidence.checkpoints:
            self._checkpoints.setdefault(checkpoint.position.seq, []).append(checkpoint)
        end: JournalEntry | None = None
        for entry in evidence.entries:
            lost = evidence.journal_start > 0
            check.check_sequence(entry, self._last, evidence.mailbox, head_lost=lost)
            self._last = entry
            for checkpoint in self._checkpoints.get(entry.seq, ()):
                check.check_checkpoint(checkpoint, entry)
            self._committed_seen |= entry.next_offset == evidence.committed
            if entry.at.offset < evidence.judged_end:
                self._take(entry)
                end = entry
        self._finish(end)

    # ------------------------------------------------------------------ which state
    def _take(self, entry: JournalEntry) -> None:
        """Judge a transaction, or say why that is impossible."""
        stage = self._folds.get(entry.fold)
        if stage is None:
            self._memory = None
            known = ", ".join(sorted(self._folds)) or "none"
            self._pass(entry, f"folded by {entry.fold}, known here: {known}")
            return
        if self._memory is None:
            self._memory = self._begin(entry, stage)
        elif self._memory.stage is not stage:
            memory = self._memory
            self._memory = Memory(stage, memory.partition, memory.rows.store, memory.position)
        if self._memory is not None:
            self._recompute(self._memory, entry)
        elif self.verdict.judged or self.verdict.unjudged:
            self._pass(entry, "no complete checkpoint gives the state before it")
        elif entry.seq >= self._evidence.first_seq:
            self._pass_head(entry)

    def _begin(self, entry: JournalEntry, stage: BoundStage) -> Memory | None:
        """Return the state before `entry`, if it can be had and the mailbox goes back to it."""
        evidence = self._evidence
        start = evidence.mailbox_span.start
        if entry.seq < evidence.first_seq or entry.first_offset < start:
            return None
        checkpoints = self._checkpoints.get(entry.seq - 1)
        if entry.seq == 1 and start == 0:
            began, position, rows = "the empty state", START, None
        elif checkpoints:
            checkpoint = checkpoints[0]
            began = f"the checkpoint of transaction {checkpoint.position.seq} at {checkpoint.at}"
            position = checkpoint.position
            rows = load_rows(self._reader, stage.codec, checkpoint)
        else:
            return None
        store = MemoryStore(rows)
        span = Span(position.next_offset, evidence.mailbox_span.end)
        self._cursor = Cursor(self._reader.read(evidence.mailbox, *span))
        self._outputs.begin(position.next_offset)
        self._rows.begin(position.seq, None if rows is None else store)
        judged = Judged(began, position.next_offset, position.next_offset, 0, position.now_ms)
        self.verdict.judged.append(judged)
        return Memory(stage, evidence.mailbox[1], store, position)

    def _pass(self, entry: JournalEntry, reason: str) -> None:
        """Note a transaction that cannot be judged, unless its mailbox records are gone anyway."""
        unjudged = self.verdict.unjudged
        start = self._evidence.mailbox_span.start
        if entry.next_offset <= start or entry.seq < self._evidence.first_seq:
            return
        if unjudged and unjudged[-1].reason == reason:
            unjudged[-1].next_offset = entry.next_offset
        else:
            unjudged.append(Unjudged(max(entry.first_offset, start), entry.next_offset, reason))

    def _pass_head(self, entry: JournalEntry) -> None:
        """Note what lies before the first checkpoint: it is lost only if no checkpoint follows."""
        start = self._evidence.mailbox_span.start
        if entry.next_offset <= start:
            return
        if self._head is None:
            reason = "no complete checkpoint gives the state before it"
            self._head = Unjudged(max(entry.first_offset, start), entry.next_offset, reason)
        self._head.next_offset = entry.next_offset

    # ------------------------------------------------------------------ one transaction
    def _recompute(self, memory: Memory, entry: JournalEntry) -> None:
        evidence, codec = self._evidence, memory.stage.codec
        raws = self._cursor.take_until(entry.next_offset)
        check.check_records(raws, entry, evidence.mailbox)
        if entry.skipped or entry.skipped_timers:
            name, end = self.verdict.stage, evidence.mailbox_span.end
            check.check_skips(self._reader, codec, name, entry, evidence.mailbox, end)
        step = check.recompute(memory, raws, entry, evidence.mailbox)
        try:
            self._outputs.compare(step.outputs)
        except Divergence as divergence:
            divergence.note = _AGREES if step.journal == entry.raw else _DISAGREES
            raise
        check.compare_journal(codec, step, entry, evidence.mailbox)
        self._rows.compare(step)
        settle(memory, step)
        self._count(raws, entry)

    def _count(self, raws: list[LogRecord], entry: JournalEntry) -> None:
        verdict, judged = self.verdict, self.verdict.judged[-1]
        verdict.transactions += 1
        verdict.records += len(raws)
        judged.first_ms = judged.first_ms or raws[0].timestamp
        judged.next_offset, judged.last_ms = entry.next_offset, entry.position.now_ms

    # ------------------------------------------------------------------ the end
    def _finish(self, end: JournalEntry | None) -> None:
        """Nothing may be left over, and the group's offset must be where the journal ends."""
        verdict, last = self.verdict, self._last
        witnessed = START if last is None else last.position
        if self._head is not None and verdict.judged:
            head = self._head
            verdict.notes.append(
                f"offsets {head.first_offset} to {head.next_offset}: {head.reason}"
            )
        elif self._head is not None:
            verdict.unjudged.insert(0, self._head)
        if last is None and self._evidence.journal_start == 0:
            self._outputs.finish(0, 0)
            self._rows.finish(MemoryStore(), 0, 0)
        elif self._memory is not None and end is not None:
            self._outputs.finish(end.next_offset, witnessed.next_offset)
            self._rows.finish(self._memory.rows.store, end.seq, witnessed.seq)
        self._check_later_checkpoints(witnessed.seq)
        self._check_committed(last)

    def _check_later_checkpoints(self, seq: int) -> None:
        for checkpoint in self._evidence.checkpoints:
            if checkpoint.position.seq > seq:
                raise Divergence(
                    DivergenceKind.CHECKPOINT_CHANGED,
                    checkpoint.at,
                    f"the state after one of {seq} transactions",
                    f"one after transaction {checkpoint.position.seq}",
                )

    def _check_committed(self, last: JournalEntry | None) -> None:
        """The group's offset was the end of a transaction, and is now at or after the last one's.

        It expires when a group is away for long; the position row holds the place as well.
        """
        evidence = self._evidence
        topic, partition = evidence.mailbox
        group = self._stage.declaration.group
        before = evidence.committed
        now = self._reader.committed(group, topic, [partition]).get(partition)
        if before is None or now is None:
            if last is not None:
                self.verdict.notes.append(f"group {group} has no committed offset")
            return
        if last is None:
            wrong = now if before > 0 and evidence.journal_start == 0 else None
            expected = f"group {group} without offset: no transaction has ended"
        else:
            wrong = now if now < last.next_offset else None
            if wrong is None and not self._committed_seen and evidence.journal_start == 0:
                wrong = before
            expected = (
                f"group {group} at offset {last.next_offset}, the end of transaction {last.seq}"
            )
        if wrong is not None:
            raise Divergence(
                DivergenceKind.OFFSET_MISMATCH,
                Position(topic, partition, wrong),
                expected,
                f"it at offset {wrong}",
            )
