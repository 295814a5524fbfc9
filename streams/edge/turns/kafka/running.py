"""A turn that runs in this worker: what its body sees of it, and how the body is made to end.

Source: the seam `streams.edge.turns.body`; DESIGN "A turn".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from streams.codec import Codec
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.held import Held
from streams.core.turn.owner import Owner
from streams.core.wire import AgentGoal, AgentJob, TurnReleaseReason
from streams.edge.turns.body import Bodies, Desired, Ending
from streams.observe import logs

__all__ = ["Running"]

_LOG = logs.logger(__name__)

_ERROR_CHARS_MAX = 1_024


class Running:
    """A claimed turn; implements `Claimed`.

    Args: durable: is called when something was given to the owner, and awaited until it is durable;
          it answers whether it is.
    """

    def __init__(
        self, owner: Owner, held: Held, codec: Codec, durable: Callable[[], Awaitable[bool]]
    ) -> None:
        self.held = held
        self.cancelled = asyncio.Event()
        self.reason: TurnReleaseReason | None = None
        """Why it is given back, once it shall be."""
        self.abandoned = False
        """Whether its turn was given back, or lost, while its body went on."""
        self._goal, self._job = held.goal, held.job
        self._owner = owner
        self._codec = codec
        self._durable = durable
        self._task: asyncio.Task[None] | None = None

    @property
    def envelope(self) -> AgentTurnEnvelope:
        """What was enqueued."""
        return self.held.envelope

    @property
    def goal(self) -> AgentGoal | None:
        """The goal, as claimed."""
        return self._goal

    @property
    def job(self) -> AgentJob | None:
        """The task, as claimed."""
        return self._job

    async def desired(self) -> Desired:
        """Return what people want of the session, as far as it was read."""
        found = self._owner.memory.desired(self.envelope.session_id)
        if found is None:
            return Desired(pause_requested=False, kill_requested=False)
        return Desired(found["pause_requested"], found["kill_requested"])

    async def write(self, goal: AgentGoal, /) -> bool:
        """Write an iteration; what ends the goal is written with the end of its turn.

        Raises: EncodeError for what is no goal.
        """
        if self.cancelled.is_set() or self.abandoned:
            return False
        self._codec.encode("agent_goal", goal)  # or the next transaction would fail for it
        return not self._owner.write(self.held, goal) or await self._durable()

    def interrupt(self, reason: TurnReleaseReason) -> None:
        """Ask the body to end at once: its turn is given back."""
        self.reason = self.reason or reason
        self.cancelled.set()

    def overrule(self) -> None:
        """Ask the body to end at once: a later turn takes its place."""
        self.cancelled.set()

    def cancel(self) -> None:
        """End a body that was asked to."""
        if self._task is not None:
            self._task.cancel()

    async def run(self, bodies: Bodies) -> Ending | None:
        """Return how its body ended; None when its turn is to be given back."""
        self._task = asyncio.current_task()
        envelope = self.envelope
        try:
            if self.cancelled.is_set():
                return None
            body = bodies.body_for(envelope.kind, envelope.agent_name)
            return _checked(await body(self), self._codec)
        except asyncio.CancelledError:
            return None
        except Exception as error:  # noqa: BLE001 - whatever a body raises is its failure
            extra = {"job_id": self.envelope.job_id, "session": self.envelope.session_id}
            _LOG.warning("turn_failed", exc_info=True, extra=extra)
            text = f"{type(error).__name__}: {error}"
            return Ending("failed", error=_sound(text)[:_ERROR_CHARS_MAX])


def _checked(ending: Ending, codec: Codec) -> Ending:
    """Return an ending that can be written.  Raises TypeError, EncodeError."""
    if not isinstance(ending, Ending):
        raise TypeError(f"the body returned {type(ending).__name__}, expected an Ending")
    for name in ("result", "error"):
        value = getattr(ending, name)
        if not isinstance(value, str | None):
            raise TypeError(f"{name} of the ending is {type(value).__name__}, expected a text")
    if ending.status not in _STATUSES:
        raise TypeError(f"status of the ending is {ending.status!r}, expected one of {_STATUSES}")
    if ending.goal is not None:
        codec.encode("agent_goal", ending.goal)
    return ending._replace(
        result=None if ending.result is None else _sound(ending.result),
        error=None if ending.error is None else _sound(ending.error),
    )


_STATUSES = ("completed", "failed", "cancelled", "paused")


def _sound(text: str) -> str:
    """Return a text without what UTF-8 cannot hold."""
    return text.encode(errors="replace").decode()
