"""A turn that was claimed on a database, as its body sees it.

Its delivery waits on a thread of its own; the body runs on the event loop, and what it asks of the
database is done on threads.  An outage of the database is waited out: it is no failure of the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.goal_spec import parse_goal_spec
from streams.core.wire import AgentGoal, AgentJob, AgentJobStatus, GoalIteration, GoalSpec
from streams.edge.turns.body import Desired, Ending
from streams.edge.turns.delivery import Ended, Lease
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.turn_store import Progress, Status, TurnRecord
from streams.errors import TaskQueueUnavailable

__all__ = ["SqlClaimed", "goal_of", "job_of", "progress_of"]

_AGAIN_S = 0.5

_Answer = TypeVar("_Answer")


class SqlClaimed:
    """Implements `Claimed`; made on the event loop that its body runs on.

    Raises: GoalSpecError, when the record of a goal holds none.
    """

    def __init__(self, turns: SqlTurns, record: TurnRecord, lease: Lease) -> None:
        self._store = turns.store
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self.session_id = record.session_id
        self.cancelled = asyncio.Event()
        is_goal = record.kind == "goal_loop"
        self.goal = goal_of(record, lease.envelope) if is_goal else None
        self.job = None if is_goal else job_of(record, lease.envelope)
        self._iterations_written = record.iterations
        lease.on_lost = self._lost
        if lease.lost.is_set():
            self.cancelled.set()

    @property
    def envelope(self) -> AgentTurnEnvelope:
        """What was enqueued."""
        return self._lease.envelope

    async def desired(self) -> Desired:
        """Return what people want of the session, as it stands now."""
        session = await self._asked(lambda: self._store.read_session(self.session_id))
        if session is None:
            return Desired(pause_requested=False, kill_requested=False)
        return Desired(session.pause_requested, session.kill_requested)

    async def write(self, goal: AgentGoal, /) -> bool:
        """Write an iteration of the goal."""
        progress = progress_of(goal)
        if not await self._asked(lambda: self._lease.iterated(progress)):
            return False
        self._iterations_written = progress.iterations
        return True

    def ended(self, ending: Ending) -> Ended:
        """Return an ending as deliveries write it; an iteration that is written stays as it is."""
        goal = ending.goal
        if goal is not None and goal["iteration_count"] > self._iterations_written:
            progress = progress_of(goal)
        else:
            progress = None
        return Ended(
            Status(ending.status),
            result=ending.result,
            error=ending.error,
            progress=progress,
            says=True,
        )

    async def _asked(self, ask: Callable[[], _Answer]) -> _Answer:
        """Return what the database answers, be it after an outage.

        Raises: asyncio.CancelledError when the turn is cancelled first.  TaskQueueUnavailable, when
                somebody must act.
        """
        while True:
            try:
                return await asyncio.to_thread(ask)
            except TaskQueueUnavailable as error:
                if not error.retryable:
                    raise
            if self.cancelled.is_set():
                raise asyncio.CancelledError
            await asyncio.sleep(_AGAIN_S)

    def _lost(self) -> None:
        """Tell the body; on any thread."""
        self._loop.call_soon_threadsafe(self.cancelled.set)


def goal_of(record: TurnRecord, envelope: AgentTurnEnvelope) -> AgentGoal:
    """Return a goal as every carrier has it.  Raises GoalSpecError when the record holds none."""
    spec = {name: each for name, each in record.spec.items() if name in GoalSpec.__annotations__}
    agent_name = record.spec.get("agent_name", "")
    iterations: list[GoalIteration] = [
        {
            "number": each["number"],
            "summary": each["summary"],
            "validated": each["validated"],
            "exit_code": each["exit_code"],
            "output": each["output"],
            "started_at_ms": each["started_at_ms"],
            "ended_at_ms": each["ended_at_ms"],
        }
        for each in record.progress
    ]
    return {
        "goal_id": record.record_id,
        "session_id": record.session_id,
        "job_id": envelope.job_id,
        "tenant": envelope.tenant,
        "status": _status(record),
        "agent_name": agent_name,
        "goal_spec": parse_goal_spec(spec),
        "owner_host": record.claimed_by,
        "claim_unix_ms": record.claimed_at_ms,
        "dispatch_host": record.dispatch_host,
        "executed_by": record.executed_by,
        "fence": record.fence,
        "attempt": record.fence,
        "iteration_count": record.iterations,
        "iterations": iterations,
        "result": record.result,
        "error": record.error,
        "created_at_ms": record.created_at_ms,
        "updated_at_ms": record.updated_at_ms,
    }


def job_of(record: TurnRecord, envelope: AgentTurnEnvelope) -> AgentJob:
    """Return an orchestrator task as every carrier has it."""
    return {
        "job_id": record.record_id,
        "session_id": record.session_id,
        "tenant": envelope.tenant,
        "agent_name": record.spec.get("agent_name", "") or envelope.agent_name,
        "description": record.spec.get("description", ""),
        "dependencies": list(record.spec.get("dependencies", ())),
        "status": _status(record),
        "claimed_by": record.claimed_by,
        "claim_unix_ms": record.claimed_at_ms,
        "dispatch_host": record.dispatch_host,
        "executed_by": record.executed_by,
        "fence": record.fence,
        "attempt": record.fence,
        "result": record.result,
        "error": record.error,
        "created_at_ms": record.created_at_ms,
        "updated_at_ms": record.updated_at_ms,
    }


def progress_of(goal: AgentGoal) -> Progress:
    """Return how far a goal is."""
    return Progress(goal["iteration_count"], goal["iterations"], goal["result"])


def _status(record: TurnRecord) -> AgentJobStatus:
    return record.status.value
