"""A partition's lanes and policies over turns that a test takes."""

from __future__ import annotations

from streams.core.turn.envelope import AgentTurnEnvelope, Policy, Priority
from streams.core.turn.lanes import Lanes, Turn
from streams.core.turn.policies import Policies


class TurnsTaken:
    """Lanes and policies, and the envelope of each turn by its offset."""

    def __init__(self, **bounds: int) -> None:
        self.envelopes: list[AgentTurnEnvelope] = []
        self.lanes = Lanes(0, **bounds)
        self.policies = Policies(self.lanes, self.envelopes.__getitem__)

    def take(
        self,
        when_busy: Policy = "enqueue",
        *,
        session_id: str = "s",
        job_id: str = "",
        payload_ref: str = "",
        priority: Priority = "normal",
    ) -> Turn:
        offset = len(self.envelopes)
        envelope = AgentTurnEnvelope(
            job_id=job_id or f"job-{offset}",
            session_id=session_id,
            payload_ref=payload_ref or f"goal-{offset}",
            priority=priority,
            when_busy=when_busy,
            enqueued_at_ms=0,
        )
        self.envelopes.append(envelope)
        turn = Turn(envelope.bucket, offset, session_id)
        self.lanes.take(offset, session_id, envelope.bucket)
        self.policies.took(turn)
        return turn

    def start(self) -> Turn:
        turn = self.lanes.best(0)
        assert turn is not None
        self.lanes.start(turn)
        return turn

    def start_aside(self) -> Turn:
        turn = self.lanes.best_aside()
        assert turn is not None
        self.lanes.start(turn)
        return turn

    def finish(self, turn: Turn) -> None:
        self.lanes.finish(turn)
        self.policies.ended(turn)
