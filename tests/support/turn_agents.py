"""What runs turns in tests: agents made of plain functions, and what became of their turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.edge.turns.agent_bodies import AgentBodies
from streams.edge.turns.agents import Agent, Agents, agent_function
from streams.settings import Settings
from tests.support.eventually import eventually

__all__ = ["Outcomes", "Work", "bodies_of"]

Work = Callable[..., Any] | tuple[Callable[..., Any], Callable[..., Any]]
"""What an agent does, or that and how it validates."""

_COMMANDS_RUN = Settings(agent_validation_commands="on")


def bodies_of(slots: int, agents: dict[str, Work]) -> AgentBodies:
    """Return bodies that run so many turns of these agents at once, and commands of goals."""
    made = {name: _agent(name, work) for name, work in agents.items()}
    return AgentBodies(_COMMANDS_RUN, Agents(made), slots=slots)


def _agent(name: str, work: Work) -> Agent:
    works, validates = work if isinstance(work, tuple) else (work, None)
    validate = None if validates is None else agent_function(validates)
    return Agent(name, agent_function(works), validate)


class Outcomes:
    """What became of turns, in order: an observer of whoever runs them."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def turn_ended(self, outcome: str) -> None:
        self.seen.append(outcome)

    async def until(self, count: int) -> list[str]:
        """Return all of them once there are so many."""
        await eventually(lambda: len(self.seen) >= count, f"{count} turns")
        return self.seen
