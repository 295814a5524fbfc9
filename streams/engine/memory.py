"""A partition's memory: its place in the mailbox, its rows, its clock, the stage's derived index.

Source: DESIGN "The stage runtime", "Taking a partition".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streams.core.state import State
from streams.engine.bound import BoundStage
from streams.engine.evidence import GENESIS
from streams.engine.rows import PartitionRows
from streams.engine.store import MemoryStore, Store

POSITION_KEY = b"\0seq"
"""Reserved row key of a partition's position; no row prefix can start with NUL."""


@dataclass(frozen=True, slots=True)
class StatePosition:
    """Where a partition's state stands after transaction `seq`.

    `next_offset` is the first mailbox offset not yet folded, `now_ms` stream time, `chain` and
    `state_hash` 32 bytes each.
    """

    seq: int
    next_offset: int
    now_ms: int
    chain: bytes
    state_hash: bytes

    def as_row(self) -> dict[str, Any]:
        """Return the value of the reserved row."""
        return {
            "seq": self.seq,
            "next_offset": self.next_offset,
            "now_ms": self.now_ms,
            "chain": self.chain,
            "state_hash": self.state_hash,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> StatePosition:
        """Read a `row_position` or any record that holds its fields."""
        return cls(row["seq"], row["next_offset"], row["now_ms"], row["chain"], row["state_hash"])


START = StatePosition(seq=0, next_offset=0, now_ms=0, chain=GENESIS, state_hash=GENESIS)
"""The empty state, before the first transaction."""


class Memory:
    """One partition of one stage, loaded and ready to fold."""

    __slots__ = ("partition", "position", "rows", "stage", "state")

    def __init__(
        self,
        stage: BoundStage,
        partition: int,
        store: Store | None = None,
        position: StatePosition = START,
    ) -> None:
        """Build timers and index from the rows in `store`; O(rows)."""
        self.stage = stage
        self.partition = partition
        self.position = position
        self.rows = PartitionRows(stage, MemoryStore() if store is None else store)
        self.state = State(
            rows=self.rows, partition=partition, partitions=stage.partitions, now_ms=position.now_ms
        )
        self.state.index = stage.fold.build_index(self.state)
        assert not self.rows.changes(), "an index is derived: it writes no rows"
        self.rows.settle()
