"""One partition that this member owns: its memory, its producer, and whether it is halted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from streams.agents.transaction import PartitionProducer
from streams.core.record import Position
from streams.engine import BoundStage, Memory, StatePosition, Store


@dataclass(slots=True)
class Owned:
    """State of an owned partition.

    `memory` is None until rows are loaded; with `outcome_unknown` it must be loaded again before
    use. `step_dropped` says that timers and index ran ahead of the committed rows. `skips` are
    offsets that an operator told the stage to pass over.
    """

    partition: int
    producer: PartitionProducer
    memory: Memory | None = None
    outcome_unknown: bool = False
    step_dropped: bool = False
    halted_at: Position | None = None
    skips: set[int] = field(default_factory=set[int])
    marked_at_s: float = field(default_factory=time.monotonic)

    def current(self, offset: int, seq: int) -> bool:
        """Whether the memory stands exactly at the committed offset and transaction."""
        if self.memory is None or self.outcome_unknown:
            return False
        position = self.memory.position
        return position.next_offset == offset and position.seq == seq

    def rebuild(self, stage: BoundStage) -> None:
        """Derive timers and index anew from the committed rows: a dropped step has moved them."""
        assert self.memory is not None, "only a loaded partition can be rebuilt"
        self.memory = Memory(stage, self.partition, self.memory.rows.store, self.memory.position)
        self.step_dropped = False

    def load(self, stage: BoundStage, store: Store, position: StatePosition) -> None:
        """Take over freshly loaded rows."""
        self.memory = Memory(stage, self.partition, store, position)
        self.outcome_unknown = False
        self.step_dropped = False
