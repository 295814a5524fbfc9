"""What an owner of a partition writes about a turn: words, and records as they stand then.

Each is gathered for the next transaction and folded into the owner's memory at once.

Source: DESIGN "A turn"; SEMANTICS 8.5, 8.9.
"""

from __future__ import annotations

from typing import Literal

from streams.core.record import Output
from streams.core.turn.claim import ENDED
from streams.core.turn.gathering import Gathering
from streams.core.turn.held import Held
from streams.core.turn.memory import Memory
from streams.core.turn.record import End, ended_goal, ended_job
from streams.core.turn.session import began, ended, said
from streams.core.wire import AgentGoal, AgentJob, AgentJobStatus, AgentSession

__all__ = ["Pen"]


class Pen:
    """Writes about the turns of one partition, as the worker of this token."""

    def __init__(self, partition: int, memory: Memory, token: str) -> None:
        self.gathering = Gathering(partition)
        self.said_since = 0
        """Words about turns since it was told where the claims end."""
        self._memory = memory
        self._token = token

    def say(self, word: Output, held: Held) -> None:
        """Write a word about a turn."""
        self.said_since += 1
        self.gathering.say(word, held.at)

    def goal_of(self, held: Held) -> AgentGoal | None:
        """Return the open goal of a turn that is a goal's."""
        is_goal = held.envelope.kind == "goal_loop"
        return self._memory.goal(held.envelope.payload_ref) if is_goal else None

    def goal(self, held: Held, goal: AgentGoal) -> None:
        """Write a goal as it stands now."""
        held.goal = held.written = goal
        output = self.gathering.goal(goal, held.at)
        self._memory.fold(output.kind, output.key, goal)

    def job(self, held: Held, job: AgentJob) -> None:
        """Write a task as it stands now."""
        held.job = job
        output = self.gathering.job(job, held.at)
        self._memory.fold(output.kind, output.key, job)

    def end_record(
        self, held: Held, status: Literal["failed", "cancelled"], error: str, now_ms: int
    ) -> None:
        """Write the end of the goal or task of a turn that does not run."""
        if (goal := self.goal_of(held)) is not None:
            after = ended_goal(goal, status, executed_by=self._token, error=error, now_ms=now_ms)
            self.goal(held, after)
        elif (job := self._memory.job(held.envelope.payload_ref)) is not None:
            job = ended_job(job, status, executed_by=self._token, error=error, now_ms=now_ms)
            self.job(held, job)

    def end_run(
        self,
        held: Held,
        goal: AgentGoal | None,
        status: End,
        result: str | None,
        error: str | None,
        now_ms: int,
    ) -> tuple[AgentJobStatus, str | None, str | None]:
        """Write the end of the goal or task of a turn that ran; return how it stands then.

        Args: goal: as its last iteration left it; None for a task.
        """
        by = self._token
        if goal is not None:
            goal = _goal_at_end(goal, status, by, error, now_ms)
            self.goal(held, goal)
            return goal["status"], goal["result"], goal["error"]
        assert held.job is not None, "only what was claimed can end"
        job = ended_job(held.job, status, executed_by=by, result=result, error=error, now_ms=now_ms)
        self.job(held, job)
        return job["status"], job["result"], job["error"]

    def session_began(self, held: Held, now_ms: int) -> None:
        """Write the session while a turn of it runs."""
        if (session := self._session_of(held)) is not None:
            self._session(held, began(session, now_ms=now_ms))

    def session_waits(self, held: Held, now_ms: int) -> None:
        """Write the session after a turn of it was given back."""
        if (session := self._session_of(held)) is not None:
            self._session(held, {**session, "status": "queued", "updated_at_ms": now_ms})

    def session_left(
        self,
        held: Held,
        status: AgentJobStatus | None,
        result: str | None,
        now_ms: int,
        *,
        others_wait: bool,
    ) -> None:
        """Write the session as it is after a turn, with what the turn came to."""
        session = self._session_of(held)
        if session is None:
            return
        if result:
            session = said(session, "assistant", result, now_ms=now_ms)
        after = ended(session, record_status=status, others_wait=others_wait, now_ms=now_ms)
        self._session(held, after)

    def _session_of(self, held: Held) -> AgentSession | None:
        return self._memory.session(held.envelope.session_id)

    def _session(self, held: Held, session: AgentSession) -> None:
        output = self.gathering.session(session, held.at)
        self._memory.fold(output.kind, output.key, session)


def _goal_at_end(
    goal: AgentGoal, status: End, token: str, error: str | None, now_ms: int
) -> AgentGoal:
    """Return a goal as its turn leaves it: its last iteration may have ended it already."""
    if goal["status"] in ENDED:
        return {**goal, "executed_by": token, "updated_at_ms": now_ms}
    return ended_goal(goal, status, executed_by=token, error=error, now_ms=now_ms)
