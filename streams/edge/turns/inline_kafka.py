"""Records of inline turns on Kafka: this process is their only writer while they run."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import cast

from streams.core.turn.claim import (
    CLAIM_TTL_MS,
    ENDED,
    Decision,
    Expire,
    Run,
    claimable_goal,
    claimable_job,
    decide,
)
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.fleet import Presence
from streams.core.turn.record import (
    Holder,
    claimed_goal,
    claimed_job,
    ended_goal,
    ended_job,
    goal_key,
    job_key,
    session_record_key,
)
from streams.core.turn.session import began, ended, said
from streams.core.wire import AgentGoal, AgentJob, AgentJobStatus, AgentSession
from streams.edge.turns.body import Ending
from streams.edge.turns.inline_records import Begun
from streams.edge.turns.kafka_ledger import KafkaLedger
from streams.edge.turns.turn_store import Status, TurnRecord

__all__ = ["KafkaInlineRecords"]

_JOBS, _SESSIONS = "agent.jobs", "agent.sessions"

_FENCE = 0
"""Of a claim that no owner of a partition made."""


class KafkaInlineRecords:
    """Implements `InlineRecords`.

    Args: token: of this process, by which it claims.  turns_max: told as its capacity.
          claim_ttl_ms: age at which another process's claim is dead.
    """

    def __init__(
        self,
        ledger: KafkaLedger,
        *,
        token: str,
        turns_max: int,
        claim_ttl_ms: int = CLAIM_TTL_MS,
    ) -> None:
        self._ledger = ledger
        self._claim_ttl_ms = claim_ttl_ms
        self._holder = Holder(token=token, host=socket.gethostname(), fence=_FENCE)
        self._presence = Presence(
            worker_id=token,
            token=token,
            host=self._holder.host,
            capacity=turns_max,
            queue_backend="inline",
            started_at_ms=ledger.now_ms(),
        )

    async def begin(self, envelope: AgentTurnEnvelope, /) -> Begun | Decision:
        """Claim the record of a turn; see `InlineRecords.begin`."""
        now_ms = self._ledger.now_ms()
        goal, job = self._found(envelope)
        record = claimable_goal(goal) if goal else claimable_job(job) if job else None
        decision = decide(envelope, record, now_ms=now_ms, ttl_ms=self._claim_ttl_ms)
        if isinstance(decision, Expire):
            failed = Ending("failed", error=decision.error)
            await self._write_end(Begun(goal, job, _FENCE), failed, now_ms)
            await self._session_left(envelope.session_id, failed, now_ms, others_wait=False)
        if not isinstance(decision, Run):
            return decision
        if goal is not None:
            goal = claimed_goal(goal, self._holder, job_id=envelope.job_id, now_ms=now_ms)
            await self._ledger.write(_JOBS, "agent_goal", goal_key(goal["goal_id"]), goal)
        if job is not None:
            job = claimed_job(job, self._holder, now_ms=now_ms)
            await self._ledger.write(_JOBS, "agent_job", job_key(job["job_id"]), job)
        session = self._session(envelope.session_id)
        if session is not None:
            await self._write_session(began(session, now_ms=now_ms))
        return Begun(goal, job, _FENCE)

    async def iterate(self, begun: Begun, goal: AgentGoal, /) -> bool:
        """Write an iteration; see `InlineRecords.iterate`."""
        if not self._is_held(begun):
            return False
        await self._ledger.write(_JOBS, "agent_goal", goal_key(goal["goal_id"]), goal)
        return True

    async def end(self, begun: Begun, ending: Ending, /, *, others_wait: bool) -> bool:
        """Write the end of what was begun; see `InlineRecords.end`."""
        now_ms = self._ledger.now_ms()
        record = begun.goal or begun.job
        assert record is not None, "a goal or a task was begun"
        if self._is_held(begun):
            await self._write_end(begun, ending, now_ms)
        elif not self._is_ended_here(begun):
            return False
        await self._session_left(record["session_id"], ending, now_ms, others_wait=others_wait)
        return True

    async def fail(self, record: TurnRecord, error: str, /) -> bool:
        """Write that a record has failed; see `InlineRecords.fail`."""
        return await self._ledger.move(record, to=Status.FAILED, error=error) is not None

    async def beat(self, sessions: Sequence[str], /) -> None:
        """Say that this process is there; see `InlineRecords.beat`."""
        value = self._presence.heartbeat(active_sessions=sessions, now_ms=self._ledger.now_ms())
        await self._ledger.write_fleet(value["worker_id"], value)

    async def leave(self) -> None:
        """Say that this process is there no more; see `InlineRecords.leave`."""
        await self._ledger.write_fleet(self._presence.worker_id, None)

    def _stands(self, begun: Begun) -> tuple[str, str, str]:
        """Return status, owner and executor of what was begun, as far as they are known."""
        if begun.goal is not None:
            found = self._ledger.known("agent_goal", goal_key(begun.goal["goal_id"]))
            owner = "owner_host"
        else:
            assert begun.job is not None, "a goal or a task was begun"
            found = self._ledger.known("agent_job", job_key(begun.job["job_id"]))
            owner = "claimed_by"
        return (
            ("", "", "") if found is None else (found["status"], found[owner], found["executed_by"])
        )

    def _is_held(self, begun: Begun) -> bool:
        """Whether what was begun still runs here: there is no fence."""
        status, owner, _ = self._stands(begun)
        return (status, owner) == ("running", self._holder.token)

    def _is_ended_here(self, begun: Begun) -> bool:
        """Whether this process has written the end, though it may not have heard so."""
        status, _, executed_by = self._stands(begun)
        return status in (*ENDED, "paused") and executed_by == self._holder.token

    async def _write_end(self, begun: Begun, ending: Ending, now_ms: int) -> None:
        by = self._holder.token
        if begun.goal is not None:
            goal = ended_goal(
                ending.goal or begun.goal,
                ending.status,
                executed_by=by,
                error=ending.error,
                now_ms=now_ms,
            )
            await self._ledger.write(_JOBS, "agent_goal", goal_key(goal["goal_id"]), goal)
        if begun.job is not None:
            job = ended_job(
                begun.job,
                ending.status,
                executed_by=by,
                result=ending.result,
                error=ending.error,
                now_ms=now_ms,
            )
            await self._ledger.write(_JOBS, "agent_job", job_key(job["job_id"]), job)

    async def _session_left(
        self, session_id: str, ending: Ending, now_ms: int, *, others_wait: bool
    ) -> None:
        session = self._session(session_id)
        if session is None:
            return
        if ending.result:
            session = said(session, "assistant", ending.result, now_ms=now_ms)
        status: AgentJobStatus = ending.status
        session = ended(session, record_status=status, others_wait=others_wait, now_ms=now_ms)
        await self._write_session(session)

    def _found(self, envelope: AgentTurnEnvelope) -> tuple[AgentGoal | None, AgentJob | None]:
        key = envelope.payload_ref
        if envelope.kind == "goal_loop":
            return cast("AgentGoal | None", self._ledger.known("agent_goal", goal_key(key))), None
        return None, cast("AgentJob | None", self._ledger.known("agent_job", job_key(key)))

    def _session(self, session_id: str) -> AgentSession | None:
        found = self._ledger.known("agent_session", session_record_key(session_id))
        return cast("AgentSession | None", found)

    async def _write_session(self, session: AgentSession) -> None:
        key = session_record_key(session["session_id"])
        await self._ledger.write(_SESSIONS, "agent_session", key, session)
