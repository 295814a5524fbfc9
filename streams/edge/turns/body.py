"""What runs a turn, and what it sees of it: the seam between carriers of turns and their bodies.

    worker of a carrier ── Claimed ──▸ body        envelope, record, what people want of the session
                        ◂── write ───              each iteration of a goal, durable
                        ◂── Ending ──              written and acked by the carrier

A body runs on the event loop; what blocks belongs into threads.  It is called once the turn is
claimed, and never while another worker may run a turn of the same session, as far as anybody can
tell; when the claim is lost, `cancelled` is set and the body ends at once: what it says then counts
for nothing.

A body that raises has failed; one that ends by asyncio.CancelledError, also of its own accord once
`cancelled` is set, gives its turn back.
Who executed a turn is written by the carrier, not by the body.

Source: seed queue-driven-agent-dispatch, "The model"; SEMANTICS 8.5, 8.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, Protocol

from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.wire import AgentGoal, AgentJob

__all__ = ["Bodies", "Body", "Claimed", "Desired", "Ending"]


class Desired(NamedTuple):
    """What people want of a session."""

    pause_requested: bool
    kill_requested: bool


class Claimed(Protocol):
    """A turn that this worker has claimed, as its body sees it."""

    @property
    def envelope(self) -> AgentTurnEnvelope:
        """What was enqueued."""
        ...

    @property
    def goal(self) -> AgentGoal | None:
        """The goal of a `goal_loop`, as claimed: it runs, and its owner is this worker."""
        ...

    @property
    def job(self) -> AgentJob | None:
        """The task of an `orchestrator_task`, as claimed."""
        ...

    @property
    def cancelled(self) -> asyncio.Event:
        """Set when the claim is lost, its hand-over is over, or the turn is interrupted."""
        ...

    async def desired(self) -> Desired:
        """Return what people want of the session, as it stands now."""
        ...

    async def write(self, goal: AgentGoal, /) -> bool:
        """Write an iteration of the goal, durably; false when the claim is lost: stop then."""
        ...


class Ending(NamedTuple):
    """How a turn ended.

    `goal` is the goal's record after its last iteration, with that iteration in it and still
    running: whoever carries the turn ends it.
    """

    status: Literal["completed", "failed", "cancelled", "paused"]
    result: str | None = None
    error: str | None = None
    goal: AgentGoal | None = None


Body = Callable[[Claimed], Awaitable[Ending]]


class Bodies(Protocol):
    """All bodies that a worker knows."""

    def body_for(self, kind: str, agent_name: str, /) -> Body:
        """Return what runs turns of a kind by an agent.

        For an agent that is not known it is a body that fails, naming those that are.
        """
        ...
