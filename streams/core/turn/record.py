"""Goals and orchestrator tasks as they stand: how a record is made, claimed, given back and ended.

    pending ──claim──▸ running ──end──▸ completed · failed · cancelled · paused
       ▴                  │
       ├─────release──────┘
       └─────resume────── paused

Each returns another value.  A record names its last holder: token, host and fence; whether a claim
may be made at all is decided before, see `streams.core.turn.claim`.

Invariants: an end is never left; `attempt` counts claims; result and error are bounded.

Source: SEMANTICS 8.5, 8.9; seed queue-driven-agent-dispatch, "Fleet visibility".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streams.core.bounds import shortened
from streams.core.turn.claim import ENDED
from streams.core.wire import AgentGoal, AgentJob, AgentJobStatus, GoalSpec, TurnOutcome

__all__ = [
    "DESCRIPTION_CHARS_MAX",
    "NOT_ENQUEUED",
    "RESULT_CHARS_MAX",
    "End",
    "Holder",
    "claimed_goal",
    "claimed_job",
    "desired_key",
    "ended_goal",
    "ended_job",
    "goal_key",
    "job_key",
    "new_goal",
    "new_job",
    "outcome_of",
    "released_goal",
    "released_job",
    "resumed_goal",
    "session_record_key",
]

RESULT_CHARS_MAX = 4_000
"""Of what a goal or task came to."""

DESCRIPTION_CHARS_MAX = 65_536
"""Of what a task is to do."""

NOT_ENQUEUED = "not enqueued: "
"""Begins the error of a record whose turn was not enqueued, as far as is known."""

End = Literal["completed", "failed", "cancelled", "paused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who claims: a worker's token and host, and the fence of its partition's owner."""

    token: str
    host: str
    fence: int


def goal_key(goal_id: str, /) -> str:
    """Return the key of a goal in `agent.jobs`."""
    return f"goal:{goal_id}"


def job_key(job_id: str, /) -> str:
    """Return the key of an orchestrator task in `agent.jobs`."""
    return f"job:{job_id}"


def session_record_key(session_id: str, /) -> str:
    """Return the key of a session in `agent.sessions`: its owner writes it."""
    return f"session:{session_id}"


def desired_key(session_id: str, /) -> str:
    """Return the key of what people want of a session in `agent.sessions`: the API writes it."""
    return f"desired:{session_id}"


def new_goal(
    goal_id: str,
    session_id: str,
    spec: GoalSpec,
    /,
    *,
    agent_name: str = "",
    tenant: str = "",
    now_ms: int,
) -> AgentGoal:
    """Make the record of a goal that waits for its first turn."""
    return {
        "goal_id": goal_id,
        "session_id": session_id,
        "job_id": "",
        "tenant": tenant,
        "status": "pending",
        "agent_name": agent_name,
        "goal_spec": spec,
        "owner_host": "",
        "claim_unix_ms": None,
        "dispatch_host": "",
        "executed_by": "",
        "fence": 0,
        "attempt": 0,
        "iteration_count": 0,
        "iterations": [],
        "result": None,
        "error": None,
        "created_at_ms": now_ms,
        "updated_at_ms": now_ms,
    }


def new_job(
    job_id: str,
    session_id: str,
    description: str,
    /,
    *,
    agent_name: str = "",
    tenant: str = "",
    now_ms: int,
) -> AgentJob:
    """Make the record of an orchestrator task that waits for its turn.

    Raises: ValueError when the description is too long.
    """
    if len(description) > DESCRIPTION_CHARS_MAX:
        raise ValueError(
            f"description has {len(description)} characters, "
            f"expected at most {DESCRIPTION_CHARS_MAX}"
        )
    return {
        "job_id": job_id,
        "session_id": session_id,
        "tenant": tenant,
        "agent_name": agent_name,
        "description": description,
        "dependencies": [],
        "status": "pending",
        "claimed_by": "",
        "claim_unix_ms": None,
        "dispatch_host": "",
        "executed_by": "",
        "fence": 0,
        "attempt": 0,
        "result": None,
        "error": None,
        "created_at_ms": now_ms,
        "updated_at_ms": now_ms,
    }


def claimed_goal(goal: AgentGoal, by: Holder, /, *, job_id: str, now_ms: int) -> AgentGoal:
    """Return the goal, running under a claim for the turn of `job_id`."""
    _must_be_open(goal["status"])
    return {
        **goal,
        "job_id": job_id,
        "status": "running",
        "owner_host": by.token,
        "claim_unix_ms": now_ms,
        "dispatch_host": by.host,
        "fence": by.fence,
        "attempt": goal["attempt"] + 1,
        "error": None,
        "updated_at_ms": now_ms,
    }


def claimed_job(job: AgentJob, by: Holder, /, *, now_ms: int) -> AgentJob:
    """Return the task, running under a claim."""
    _must_be_open(job["status"])
    return {
        **job,
        "status": "running",
        "claimed_by": by.token,
        "claim_unix_ms": now_ms,
        "dispatch_host": by.host,
        "fence": by.fence,
        "attempt": job["attempt"] + 1,
        "updated_at_ms": now_ms,
    }


def released_goal(goal: AgentGoal, /, *, now_ms: int) -> AgentGoal:
    """Return the goal, given back by its holder: it waits again, its iterations kept."""
    _must_be_open(goal["status"])
    return {**goal, "status": "pending", "owner_host": "", "updated_at_ms": now_ms}


def released_job(job: AgentJob, /, *, now_ms: int) -> AgentJob:
    """Return the task, given back by its holder: it waits again."""
    _must_be_open(job["status"])
    return {**job, "status": "pending", "claimed_by": "", "updated_at_ms": now_ms}


def ended_goal(
    goal: AgentGoal, status: End, /, *, executed_by: str, error: str | None = None, now_ms: int
) -> AgentGoal:
    """Return the goal as it ended or was paused; what the iterations came to stays."""
    _must_be_open(goal["status"])
    return {
        **goal,
        "status": status,
        "executed_by": executed_by,
        "error": None if error is None else shortened(error),
        "updated_at_ms": now_ms,
    }


def ended_job(
    job: AgentJob,
    status: End,
    /,
    *,
    executed_by: str,
    result: str | None = None,
    error: str | None = None,
    now_ms: int,
) -> AgentJob:
    """Return the task as it ended."""
    _must_be_open(job["status"])
    return {
        **job,
        "status": status,
        "executed_by": executed_by,
        "result": None if result is None else result[:RESULT_CHARS_MAX],
        "error": None if error is None else shortened(error),
        "updated_at_ms": now_ms,
    }


def resumed_goal(goal: AgentGoal, /, *, now_ms: int) -> AgentGoal:
    """Return a paused goal as it waits for another turn."""
    assert goal["status"] == "paused", "only what is paused can be resumed"
    return {**goal, "status": "pending", "owner_host": "", "updated_at_ms": now_ms}


def outcome_of(status: AgentJobStatus, /) -> TurnOutcome:
    """Return the outcome of a turn whose body returned and left its record in `status`.

    A goal that was paused or cancelled on request is a turn that did what it was asked to.
    """
    return "failed" if status == "failed" else "completed"


def _must_be_open(status: AgentJobStatus) -> None:
    assert status not in ENDED, "an end is never left"
