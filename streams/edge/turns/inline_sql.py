"""Records of inline turns on SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from streams.core.turn.claim import Decision, Run, Skip
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.goal_spec import GoalSpecError
from streams.core.wire import AgentGoal
from streams.edge.turns.body import Ending
from streams.edge.turns.inline_records import Begun
from streams.edge.turns.sql_claimed import goal_of, job_of, progress_of
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.turn_store import Claimant, FleetWorker, Status, TurnRecord

__all__ = ["SqlInlineRecords"]


class SqlInlineRecords:
    """Implements `InlineRecords`; each call is made on a thread.

    Args: token: of this process, by which it claims.  turns_max: told as its capacity.
    """

    def __init__(self, turns: SqlTurns, *, token: str, turns_max: int) -> None:
        self._store = turns.store
        self._by = Claimant(token, socket.gethostname())
        self._turns_max = turns_max

    async def begin(self, envelope: AgentTurnEnvelope, /) -> Begun | Decision:
        """Claim the record of a turn; see `InlineRecords.begin`."""
        answer = await asyncio.to_thread(self._store.claim, envelope, self._by)
        record = answer.record
        if not isinstance(answer.decision, Run) or record is None:
            return answer.decision
        if record.kind != "goal_loop":
            return Begun(None, job_of(record, envelope), record.fence)
        try:
            return Begun(goal_of(record, envelope), None, record.fence)
        except GoalSpecError as error:
            await self.fail(record, str(error))
            return Skip("terminal")

    async def iterate(self, begun: Begun, goal: AgentGoal, /) -> bool:
        """Write an iteration; see `InlineRecords.iterate`."""
        progress = progress_of(goal)
        return await asyncio.to_thread(self._store.iterate, goal["goal_id"], begun.fence, progress)

    async def end(self, begun: Begun, ending: Ending, /, *, others_wait: bool) -> bool:
        """Write the end of what was begun; see `InlineRecords.end`."""
        del others_wait  # the next turn says that the session runs, some milliseconds later
        record_id = begun.job["job_id"] if begun.job is not None else ""
        if begun.goal is not None:
            record_id = begun.goal["goal_id"]
        progress = None if ending.goal is None else progress_of(ending.goal)

        def finish() -> bool:
            return self._store.finish(
                record_id,
                begun.fence,
                Status(ending.status),
                result=ending.result,
                error=ending.error,
                progress=progress,
                says=True,
            )

        def was_finished() -> bool:
            """Whether an earlier try took effect, though its answer was lost."""
            found = self._store.read(record_id)
            if found is None or found.status != ending.status:
                return False
            return (found.fence, found.executed_by) == (begun.fence, self._by.token)

        return await asyncio.to_thread(lambda: finish() or was_finished())

    async def fail(self, record: TurnRecord, error: str, /) -> bool:
        """Write that a record has failed; see `InlineRecords.fail`."""

        def work() -> bool:
            key = record.record_id
            if record.status is Status.RUNNING:
                # What it came to so far stays.
                return self._store.finish(
                    key, record.fence, Status.FAILED, result=record.result, error=error
                )
            return self._store.move(key, from_={record.status}, to=Status.FAILED, error=error)

        return await asyncio.to_thread(work)

    async def beat(self, sessions: Sequence[str], /) -> None:
        """Say that this process is there; see `InlineRecords.beat`."""
        worker = FleetWorker(
            worker_id=self._by.token,
            host=self._by.host,
            capacity=self._turns_max,
            active_sessions=tuple(sorted(sessions)),
            queue_backend="inline",
        )
        await asyncio.to_thread(self._store.beat, worker)

    async def leave(self) -> None:
        """Say that this process is there no more; see `InlineRecords.leave`."""
        await asyncio.to_thread(self._store.leave, self._by.token)
