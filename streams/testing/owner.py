"""Whoever owns a partition of a stage, in memory: takes it, folds batches, commits each, may die.

    fence → load the changelog → [fetch → fold → transaction]*

It writes what the live stage writes: outputs, changed rows and the position row into the changelog,
the journal entry, and the group's offset, in one transaction.

Invariants: memory never stands between two transactions; the changelog's position row and the
group's offset agree whenever a partition is taken.

Source: DESIGN law 6, "The stage runtime".
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from streams.audit.log import LogRecord
from streams.core.record import Position
from streams.engine import (
    POSITION_KEY,
    START,
    BoundStage,
    FoldFailed,
    Memory,
    MemoryStore,
    StatePosition,
    Step,
    fold_batch,
    settle,
)
from streams.testing.memory_kafka import MemoryKafka

JOURNAL = "audit.journal"


class CrashPoint(StrEnum):
    """Where in its step an owner dies."""

    BEFORE_TRANSACTION = "before_transaction"  # folded, nothing written
    IN_TRANSACTION = "in_transaction"  # some of it written, the transaction left open
    BEFORE_COMMIT = "before_commit"  # all of it written, offsets too, the transaction left open
    AFTER_COMMIT = "after_commit"  # committed, and nobody told


class Crashed(Exception):  # noqa: N818 - what happened, not an error of the caller's
    """The owner died at a crash point, as it was told to."""


Observer = Callable[["StageOwner", Step], None]
"""Called for every step, folded and about to be written."""


class StageOwner:
    """One partition of one stage, taken.  A crashed or fenced owner must be replaced by another."""

    def __init__(
        self, kafka: MemoryKafka, stage: BoundStage, partition: int, observe: Observer
    ) -> None:
        self.stage = stage
        self.partition = partition
        self.halted: FoldFailed | None = None
        self._kafka = kafka
        self._observe = observe
        self._skips: frozenset[int] = frozenset()
        self._timer_skips: frozenset[str] = frozenset()
        declared = stage.declaration
        self._producer = kafka.producer(f"{declared.group}-{declared.name}-{partition}")
        self.memory = self._load()

    def _load(self) -> Memory:
        """Rebuild memory from the changelog, whose position must agree with the group's offset."""
        declared, partition = self.stage.declaration, self.partition
        rows: dict[bytes, bytes] = {}
        end = self._kafka.spans([(declared.changelog, partition)])[
            declared.changelog, partition
        ].end
        for records in self._kafka.read((declared.changelog, partition), 0, end):
            for record in records:
                key = record.key or b""
                if record.value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = record.value
        row = rows.pop(POSITION_KEY, None)
        position = START
        if row is not None:
            position = StatePosition.from_row(self.stage.codec.decode(row)[1])
        group_offset = self._kafka.committed(declared.group, declared.source, [partition])
        offset = group_offset.get(partition, 0)
        assert offset == position.next_offset, (
            f"{declared.name}/{partition}: the changelog stands at offset {position.next_offset}, "
            f"the group at {offset}"
        )
        return Memory(self.stage, partition, MemoryStore(rows), position)

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.stage.declaration.name

    @property
    def next_tick_ms(self) -> int | None:
        """When the next timer is due that does not wait for traffic; None while halted."""
        return None if self.halted is not None else self.memory.rows.next_tick_ms()

    def has_work(self) -> bool:
        """Whether there is a record to fold."""
        return self.halted is None and bool(self._fetch(1))

    def _fetch(self, limit: int) -> list[LogRecord]:
        source = self.stage.declaration.source
        return self._kafka.fetch(source, self.partition, self.memory.position.next_offset, limit)

    def step(self, limit: int, crash: CrashPoint | None = None) -> bool:
        """Fold at most `limit` records and commit them; False when there was none.

        A record on which the fold raises halts the partition before it (`halted`).

        Raises: Crashed at the crash point; Fenced when the partition has another owner.
        """
        records = self._fetch(limit)
        if self.halted is not None or not records:
            return False
        try:
            step = fold_batch(
                self.memory, records, skips=self._skips, timer_skips=self._timer_skips
            )
        except FoldFailed as failure:
            self.memory = self._load()
            if failure.suspects > 1:
                self.step(failure.suspects // 2, crash)
            elif failure.index == 0:
                self.halted = failure
            else:  # the records before it fold alike, whatever the cut
                self.step(failure.index, crash)
            return True
        self._observe(self, step)
        self._write(step, crash)
        settle(self.memory, step)
        self._skips, self._timer_skips = frozenset(), frozenset()
        return True

    def _write(self, step: Step, crash: CrashPoint | None) -> None:
        if crash is CrashPoint.BEFORE_TRANSACTION:
            raise Crashed(crash)
        producer, declared = self._producer, self.stage.declaration
        producer.begin()
        for output in step.outputs:
            producer.append(
                output.topic,
                output.value,
                key=output.key,
                headers=output.headers,
                partition=output.partition,
            )
        if crash is CrashPoint.IN_TRANSACTION:
            raise Crashed(crash)
        for key, value in step.rows:
            producer.append(declared.changelog, value, key=key, partition=self.partition)
        producer.append(
            declared.changelog,
            step.position_row,
            key=POSITION_KEY,
            headers=step.position_headers,
            partition=self.partition,
        )
        producer.append(
            JOURNAL,
            step.journal,
            key=f"{declared.name}/{self.partition}".encode(),
            headers=[("kind", b"journal_entry")],
            partition=self.partition % self._kafka.partitions(JOURNAL),
        )
        producer.send_offset(
            declared.group, declared.source, self.partition, step.position.next_offset
        )
        if crash is CrashPoint.BEFORE_COMMIT:
            raise Crashed(crash)
        producer.commit()
        if crash is CrashPoint.AFTER_COMMIT:
            raise Crashed(crash)

    def go_on(self) -> None:
        """Commit the transaction that this owner stalled in.  Raises Fenced once it is replaced."""
        self._producer.commit()

    def resume(self, *, skip: bool = False) -> None:
        """Let a halted partition go on: try its record again, or pass over what failed."""
        failure = self.halted
        if failure is None:
            return
        if skip and failure.timer is not None:
            self._timer_skips |= {failure.timer}
        elif skip:
            self._skips |= {failure.offset}
        self.halted = None

    @property
    def halted_at(self) -> Position | None:
        """Where the partition is halted, or None."""
        if self.halted is None:
            return None
        return Position(self.stage.declaration.source, self.partition, self.halted.offset)
