"""What a user's agent sees of a turn, and what it may answer: the whole API of agents.

    def work(turn):                  # or: async def work(turn)
        return f"did what was asked: {turn.objective}"

An agent runs an orchestrator's task once, and a goal once in each iteration.  It is named in a
manifest's `[agents]`, or by an entry point of the group `harn.agents` of an installed distribution.

| the agent | a task | an iteration of a goal |
|---|---|---|
| returns a text, a JSON value, or nothing | completed, with that result | done, with that summary |
| raises `Terminal` | failed | the goal has failed |
| raises anything else, or takes too long | failed | not passed: the next one is done |

A function that validates takes a turn as well, whose `summary` is what the iteration came to, and
answers True or False.

`turn.cancelled` says when it shall end early: the claim is lost, or the worker stops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from streams.cancel_token import Cancelled, CancelToken
from streams.handler_api import Terminal

__all__ = ["CancelToken", "Cancelled", "Done", "Terminal", "Turn"]


@dataclass(frozen=True, slots=True)
class Done:
    """An iteration that was done before."""

    number: int
    """From 1."""
    summary: str
    """What it came to, at most 4,000 characters."""
    validated: bool | None
    """Whether the goal was reached by it; None when nobody could tell."""
    output: str
    """The end of what its validation wrote, at most 1,024 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is to be done now."""

    kind: Literal["goal_loop", "orchestrator_task"]
    """A goal's iteration, or a task."""
    objective: str
    """What is to be reached; of a task, its description."""
    session_id: str
    """The conversation that it belongs to: its turns run one after another."""
    record_id: str
    """Id of the goal or task."""
    job_id: str
    """Id of the turn."""
    idempotency_key: str
    """The same when this work is done again: a worker may be lost just after it was done."""
    agent_name: str = ""
    """By which the agent was asked for; empty when the turn named none."""
    tenant: str = ""
    """Whose it is; empty for nobody's."""
    attempt: int = 1
    """How often the goal or task was claimed, this time included."""
    end_state: str = ""
    """What holds when the goal is reached; empty when nobody says."""
    constraints: tuple[str, ...] = ()
    """What must hold on the way."""
    iteration: int = 1
    """Number of this iteration, from 1."""
    max_iterations: int = 1
    """Iterations after which the goal has failed."""
    done: tuple[Done, ...] = ()
    """The newest of the iterations before, in their order; 20 at most."""
    summary: str = ""
    """For a function that validates: what the iteration came to."""
    cancelled: CancelToken = field(default_factory=CancelToken, compare=False, repr=False)
    """Flips when the agent shall end."""
