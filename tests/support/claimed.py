"""A turn as a carrier in memory has claimed it, for whatever runs turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from streams.core.turn.envelope import AgentTurnEnvelope, Kind
from streams.core.turn.goal_spec import parse_goal_spec
from streams.core.turn.record import Holder, claimed_goal, claimed_job, new_goal, new_job
from streams.core.wire import AgentGoal, AgentJob
from streams.edge.turns.body import Desired

HOLDER = Holder(token="w:1", host="h", fence=1)


class MemoryClaimed:
    """Keeps what is written; `on_write` is told each time, and may change what is wanted."""

    def __init__(
        self,
        kind: Kind,
        *,
        goal: AgentGoal | None = None,
        job: AgentJob | None = None,
        agent_name: str = "",
    ) -> None:
        record_id = goal["goal_id"] if goal else job["job_id"] if job else ""
        self.envelope = AgentTurnEnvelope(
            job_id="j",
            session_id="s",
            kind=kind,
            payload_ref=record_id,
            agent_name=agent_name,
            enqueued_at_ms=0,
        )
        self.goal = goal
        self.job = job
        self.cancelled = asyncio.Event()
        self.wanted = Desired(pause_requested=False, kill_requested=False)
        self.is_held = True
        self.written: list[AgentGoal] = []
        self.on_write: Callable[[AgentGoal], None] = lambda _goal: None

    async def desired(self) -> Desired:
        return self.wanted

    async def write(self, goal: AgentGoal, /) -> bool:
        self.written.append(goal)
        self.on_write(goal)
        return self.is_held


def goal_claimed(agent_name: str = "", **spec: Any) -> MemoryClaimed:
    pending = new_goal("g", "s", parse_goal_spec({"objective": "win", **spec}), now_ms=0)
    found = claimed_goal(pending, HOLDER, job_id="j", now_ms=0)
    return MemoryClaimed("goal_loop", goal=found, agent_name=agent_name)


def job_claimed(description: str = "do it", agent_name: str = "") -> MemoryClaimed:
    pending = new_job("t", "s", description, agent_name=agent_name, tenant="acme", now_ms=0)
    found = claimed_job(pending, HOLDER, now_ms=0)
    return MemoryClaimed("orchestrator_task", job=found, agent_name=agent_name)
