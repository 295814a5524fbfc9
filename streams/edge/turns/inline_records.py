"""What running turns inline needs of the carrier of records, besides its ledger.

Every method raises TaskQueueUnavailable when the carrier cannot be reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from streams.core.turn.claim import Decision
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.wire import AgentGoal, AgentJob
from streams.edge.turns.body import Ending
from streams.edge.turns.turn_store import TurnRecord

__all__ = ["Begun", "InlineRecords"]


class Begun(NamedTuple):
    """A goal or task that runs, as it stands written; `fence` of its claim."""

    goal: AgentGoal | None
    job: AgentJob | None
    fence: int


class InlineRecords(Protocol):
    """Goals and tasks, claimed by this process."""

    async def begin(self, envelope: AgentTurnEnvelope, /) -> Begun | Decision:
        """Write that the record of a turn runs here, and its session; or say why it may not.

        What may not since its deadline has passed has failed then.
        """
        ...

    async def iterate(self, begun: Begun, goal: AgentGoal, /) -> bool:
        """Write an iteration; false when somebody else has ended the goal."""
        ...

    async def end(self, begun: Begun, ending: Ending, /, *, others_wait: bool) -> bool:
        """Write the end of what was begun, and what its session is after it.

        False when somebody else has ended it meanwhile: then nothing is written.
        """
        ...

    async def fail(self, record: TurnRecord, error: str, /) -> bool:
        """Write that a record has failed, which runs or waits; false when it stands otherwise."""
        ...

    async def beat(self, sessions: Sequence[str], /) -> None:
        """Say that this process is there, and for which sessions it works."""
        ...

    async def leave(self) -> None:
        """Say that this process is there no more."""
        ...
