"""An owner of a partition of turns, for tests that call it as a worker does."""

from __future__ import annotations

from typing import Any

from streams.core.record import Position
from streams.core.turn import words
from streams.core.turn.held import Loaded
from streams.core.turn.memory import Memory
from streams.core.turn.owner import Owner
from streams.core.wire import GoalSpec

NOW = 10_000
SPEC: GoalSpec = {
    "objective": "all tests pass",
    "end_state": "",
    "validation_cmd": None,
    "max_iterations": 3,
    "constraints": [],
}


def owner(memory: Memory | None = None, **changes: Any) -> Owner:
    """The owner `w` of partition 2, loaded from its beginning."""
    loaded = Loaded(2, 0, memory or Memory(0), claims_from=0, claims_end=5)
    return Owner(loaded, token="w", host="h", **changes)


def at(offset: int) -> Position:
    """The place of a turn in that partition."""
    return Position(words.TURNS, 2, offset)
