"""Turns of a partition, the slow way: a list that is searched from its beginning each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class ModelTurn:
    offset: int
    session_id: str
    bucket: int
    state: Literal["taken", "running", "finished"] = "taken"
    not_before_ms: int | None = None


class ModelLanes:
    """All turns ever taken, in the order of the log."""

    def __init__(self, next_offset: int, max_beyond_prefix: int, max_taken: int) -> None:
        self.turns: list[ModelTurn] = []
        self.next_offset = next_offset
        self.max_beyond_prefix = max_beyond_prefix
        self.max_taken = max_taken
        self.stopped = False

    def unfinished(self) -> list[ModelTurn]:
        return [turn for turn in self.turns if turn.state != "finished"]

    def running(self) -> list[ModelTurn]:
        return [turn for turn in self.turns if turn.state == "running"]

    def committable(self) -> int:
        return min((turn.offset for turn in self.unfinished()), default=self.next_offset)

    def past(self, *states: str) -> int:
        """Turns in one of the states past the first unfinished one."""
        first = self.committable()
        return sum(turn.offset > first and turn.state in states for turn in self.turns)

    def wants_more(self) -> bool:
        return (
            not self.stopped
            and len(self.unfinished()) < self.max_taken
            and self.past("finished", "running") < self.max_beyond_prefix
        )

    def startable(self, now_ms: int) -> list[ModelTurn]:
        """What may start, the best first."""
        if self.stopped:
            return []
        first = self.committable()
        full = self.past("finished", "running") >= self.max_beyond_prefix
        found = [
            turn
            for turn in self.unfinished()
            if turn.state == "taken"
            and (turn.not_before_ms is None or turn.not_before_ms <= now_ms)
            and (turn.offset == first or not full)
            and not any(
                other.session_id == turn.session_id and other.offset < turn.offset
                for other in self.unfinished()
            )
        ]
        return sorted(found, key=lambda turn: (turn.bucket, turn.offset))
