"""A turn in the hands of an owner of its partition, and what the owner is loaded from.

Source: DESIGN "A turn".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streams.core.record import Position
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.lanes import Turn
from streams.core.turn.memory import Memory
from streams.core.turn.words import Tried
from streams.core.wire import AgentGoal, AgentJob

__all__ = ["Held", "Loaded"]


@dataclass(slots=True, eq=False)
class Held:
    """A turn that was taken and has not ended.

    It is `certain` once every record that was there when it was read has been folded.  `goal` or
    `job` is its record as claimed, `written` the goal as it was written last.
    """

    turn: Turn
    envelope: AgentTurnEnvelope
    at: Position
    arrived_ms: int
    certain: bool = False
    tried: Tried | None = None
    goal: AgentGoal | None = None
    written: AgentGoal | None = None
    job: AgentJob | None = None

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Where it stands among turns of several partitions: smaller is earlier."""
        return (self.turn.bucket, self.arrived_ms, self.at.partition, self.at.offset)


class Loaded(NamedTuple):
    """A partition as it was loaded: where turns begin, and between which offsets claims lay.

    `yields` when the owner before was handing it over and has not said that it was done.
    """

    partition: int
    committed: int
    memory: Memory
    claims_from: int
    claims_end: int
    yields: bool = False
