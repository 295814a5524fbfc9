"""The bodies of a worker: what an agent does with a goal, and with an orchestrator's task.

Source: seed queue-driven-agent-dispatch, "The model"; SEMANTICS 8.5, 8.9.
"""

from __future__ import annotations

from streams.agent_api import Turn
from streams.core.turn.envelope import KINDS
from streams.edge.turns.agent_runner import AgentObserver, AgentRunner
from streams.edge.turns.agents import Agent, Agents
from streams.edge.turns.body import Body, Claimed, Ending
from streams.edge.turns.goal_body import GoalBody, text_of
from streams.edge.turns.validation import validating_of
from streams.settings import Settings

__all__ = ["AgentBodies"]

_KILLED = "killed on request"


class AgentBodies:
    """Bodies of turns by the agents of this process; made and used inside one event loop.

    Args:    slots: calls of agents that run at a time, at most.
    """

    def __init__(
        self,
        settings: Settings,
        agents: Agents,
        *,
        slots: int,
        observer: AgentObserver | None = None,
    ) -> None:
        self._agents = agents
        self._validating = validating_of(settings)
        self._runner = AgentRunner(settings, slots=slots, observer=observer)
        self._bodies: dict[tuple[str, str], Body] = {}
        self.failed = self._runner.failed
        """Set to an error when agents that do not end have filled the process."""

    def start(self) -> None:
        """Begin to look after agents that run."""
        self._runner.start()

    async def adopt(self, agents: Agents, /) -> None:
        """Run what begins from now on by these; goals that run end as they began."""
        self._agents = agents
        self._bodies.clear()

    async def close(self) -> None:
        """Let threads of agents end with what they do now."""
        await self._runner.close()

    def body_for(self, kind: str, agent_name: str, /) -> Body:
        """Return what runs turns of a kind by an agent; see `Bodies.body_for`."""
        known = self._bodies.get((kind, agent_name))
        if known is not None:
            return known
        if kind not in KINDS:
            return _failing(f"turns of kind {kind!r} are not known, only {', '.join(KINDS)}")
        agent = self._agents.find(agent_name)
        if isinstance(agent, str):
            return _failing(agent)
        body: Body
        if kind == "goal_loop":
            body = GoalBody(self._runner, agent, self._validating)
        else:
            body = _TaskBody(self._runner, agent)
        self._bodies[kind, agent_name] = body
        return body


class _TaskBody:
    """Runs orchestrator tasks by one agent: once, to the agent's result."""

    def __init__(self, runner: AgentRunner, agent: Agent) -> None:
        self._runner = runner
        self._agent = agent

    async def __call__(self, claimed: Claimed) -> Ending:
        job, envelope = claimed.job, claimed.envelope
        assert job is not None, "a task's turn is claimed with its task"
        if (await claimed.desired()).kill_requested:
            return Ending("cancelled", error=_KILLED)
        turn = Turn(
            kind="orchestrator_task",
            objective=job["description"],
            session_id=job["session_id"],
            record_id=job["job_id"],
            job_id=envelope.job_id,
            idempotency_key=job["job_id"],
            agent_name=job["agent_name"],
            tenant=job["tenant"],
            attempt=job["attempt"],
        )
        outcome = await self._runner.call(
            self._agent.work,
            turn,
            cancelled=claimed.cancelled,
            timeout_ms=self._agent.timeout_ms,
        )
        if outcome.outcome == "success":
            return Ending("completed", result=text_of(outcome))
        return Ending("failed", error=outcome.error or outcome.outcome)


def _failing(reason: str) -> Body:
    async def fail(claimed: Claimed) -> Ending:
        result = None if claimed.goal is None else claimed.goal["result"]
        return Ending("failed", result, reason)

    return fail
