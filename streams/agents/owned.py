"""One partition that this member owns: its memory, its producer, and whether it is halted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from streams.agents.transaction import PartitionProducer
from streams.core.record import Position
from streams.engine import BoundStage, Memory


@dataclass(slots=True)
class Owned:
    """State of an owned partition.

    `memory` is None until rows are loaded; with `outcome_unknown` it must be loaded again before
    use.  `step_dropped` says that timers and index ran ahead of the committed rows.

    `skips` and `timer_skips` are the offsets and timers that an operator told the stage to pass
    over at the record that comes next; `heard` is the offset of the last word to resume that was
    obeyed.
    """

    partition: int
    producer: PartitionProducer
    memory: Memory | None = None
    outcome_unknown: bool = False
    step_dropped: bool = False
    halted_at: Position | None = None
    skips: set[int] = field(default_factory=set[int])
    timer_skips: set[str] = field(default_factory=set[str])
    heard: int = -1
    marked_at_s: float = field(default_factory=time.monotonic)

    def current(self, offset: int, seq: int) -> bool:
        """Whether the memory stands exactly at the committed offset (-1 for none) and transaction.

        Nothing committed and nothing folded agree as well.
        """
        if self.memory is None or self.outcome_unknown:
            return False
        position = self.memory.position
        return position.seq == seq and offset in (position.next_offset, -1)

    @property
    def told(self) -> bool:
        """Whether an operator has spoken about the record that comes next."""
        return bool(self.skips or self.timer_skips)

    def forget_words(self) -> None:
        """The record that an operator spoke about is behind."""
        self.skips.clear()
        self.timer_skips.clear()

    def rebuild(self, stage: BoundStage) -> None:
        """Derive timers and index anew from the committed rows: a dropped step has moved them."""
        assert self.memory is not None, "only a loaded partition can be rebuilt"
        self.memory = Memory(stage, self.partition, self.memory.rows.store, self.memory.position)
        self.step_dropped = False

    def loaded(self, memory: Memory) -> None:
        """Take over freshly loaded rows."""
        self.memory = memory
        self.outcome_unknown = False
        self.step_dropped = False
