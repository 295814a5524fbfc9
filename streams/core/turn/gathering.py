"""What an owner of a partition is about to write: outputs gather, and go as one transaction.

Of a session the newest record of a batch is written alone, after all else.

Source: DESIGN law 6, "A turn".
"""

from __future__ import annotations

from typing import NamedTuple

from streams.core.record import Output, Position
from streams.core.turn.record import goal_key, job_key, session_record_key
from streams.core.turn.words import JOBS, SESSIONS
from streams.core.wire import AgentGoal, AgentJob, AgentSession, TurnOutcome

__all__ = ["Batch", "Gathering"]


class Batch(NamedTuple):
    """What one transaction writes: outputs with their causes, the offset and its metadata.

    `outcomes` are those of the turns that end with it.
    """

    outputs: list[tuple[Output, Position]]
    offset: int
    metadata: str
    outcomes: list[TurnOutcome]


class Gathering:
    """Outputs of one partition."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._outputs: list[tuple[Output, Position]] = []
        self._sessions: dict[str, tuple[Output, Position]] = {}
        self._outcomes: list[TurnOutcome] = []

    def __len__(self) -> int:
        """How many outputs wait, sessions' not counted: there is one for each at most."""
        return len(self._outputs)

    def __bool__(self) -> bool:
        return bool(self._outputs or self._sessions)

    def say(self, word: Output, cause: Position) -> None:
        """Add a word about a turn, or a dead letter."""
        self._outputs.append((word, cause))

    def end(self, word: Output, cause: Position, outcome: TurnOutcome) -> None:
        """Add the end of a turn."""
        self._outputs.append((word, cause))
        self._outcomes.append(outcome)

    def goal(self, goal: AgentGoal, cause: Position) -> Output:
        """Add a goal as it stands now; return the output."""
        return self._record("agent_goal", goal_key(goal["goal_id"]), goal, cause)

    def job(self, job: AgentJob, cause: Position) -> Output:
        """Add a task as it stands now; return the output."""
        return self._record("agent_job", job_key(job["job_id"]), job, cause)

    def session(self, session: AgentSession, cause: Position) -> Output:
        """Add a session as it stands now; return the output."""
        key, headers = session_record_key(session["session_id"]), _tenant(session["tenant"])
        output = Output(SESSIONS, "agent_session", key, session, self._partition, headers)
        self._sessions[key] = (output, cause)
        return output

    def batch(self, offset: int, metadata: str) -> Batch:
        """Hand over all that has gathered."""
        found = Batch([*self._outputs, *self._sessions.values()], offset, metadata, self._outcomes)
        self._outputs, self._sessions, self._outcomes = [], {}, []
        return found

    def _record(self, kind: str, key: str, value: AgentGoal | AgentJob, cause: Position) -> Output:
        output = Output(JOBS, kind, key, value, self._partition, _tenant(value["tenant"]))
        self._outputs.append((output, cause))
        return output


def _tenant(tenant: str) -> tuple[tuple[str, str], ...]:
    return (("tenant_id", tenant),) if tenant else ()
