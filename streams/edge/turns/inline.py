"""Turns that run in the process that takes them: no queue, and records like those of any worker.

    put ─▸ lane of its session ─ begin (record running) ─▸ body ─▸ end (record written) ─▸ next

One turn of a session runs at a time, in the order in which they were put; sessions run side by
side.  Running and waiting turns together are bounded: beyond that a turn is refused.

Nothing of this survives the process, and that is told.  What has not ended when it stops has failed
then; what a process left behind that was killed fails as soon as another one finds it dead: by its
host and pid at once, else when it was not heard of for 90 s.

Source: seed queue-driven-agent-dispatch, "The model" (AGENT_DISPATCH_BACKEND); SEMANTICS 8.2.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from streams.core.turn.claim import Decision, Expire, Skip
from streams.core.turn.envelope import KINDS, AgentTurnEnvelope
from streams.core.turn.fleet import HEARTBEAT_MS, SESSIONS_SHOWN_MAX
from streams.core.turn.policies import interrupted_by, is_in_the_way
from streams.core.wire import AgentGoal, AgentJob
from streams.edge.turns.body import Bodies, Desired, Ending
from streams.edge.turns.inline_records import Begun, InlineRecords
from streams.edge.turns.sql_worker import TurnObserver
from streams.edge.turns.task_queue import TurnRejected
from streams.edge.turns.turn_ledger import TurnLedger
from streams.edge.turns.turn_store import LISTED_MAX, Status, TurnRecord
from streams.errors import TaskQueueFull, TaskQueueUnavailable
from streams.observe import logs

__all__ = ["BACKEND", "InlineTurns", "inline_token", "is_dead"]

BACKEND = "inline"
"""What heartbeats and metrics say of where turns are."""

_SUFFIX = ":inline"
_STOPPED = "the process that ran it has stopped: inline turns end with their process"
_GIVE_UP_S = 10.0
_AGAIN_S = 0.5
_TRIES = 120
_ERROR_CHARS_MAX = 1_024

_LOG = logs.logger(__name__)

_Answer = TypeVar("_Answer")


def inline_token() -> str:
    """Return the token of a process that runs turns inline: its host, its pid, and what is its."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}{_SUFFIX}"


@dataclass(eq=False, slots=True)
class _Entry:
    """A turn of this process that has not ended."""

    envelope: AgentTurnEnvelope
    interrupted_by: str | None = None
    """The job of the turn that interrupted it."""
    running: _Running | None = None


class _Running:
    """A turn that runs here; implements `Claimed`."""

    def __init__(
        self, records: InlineRecords, ledger: TurnLedger, envelope: AgentTurnEnvelope, begun: Begun
    ) -> None:
        self._records = records
        self._ledger = ledger
        self.envelope = envelope
        self.begun = begun
        self.cancelled = asyncio.Event()

    @property
    def goal(self) -> AgentGoal | None:
        """The goal, as begun."""
        return self.begun.goal

    @property
    def job(self) -> AgentJob | None:
        """The task, as begun."""
        return self.begun.job

    async def desired(self) -> Desired:
        """Return what people want of the session, as it stands now."""
        session = await self._asked(lambda: self._ledger.session(self.envelope.session_id))
        if session is None:
            return Desired(pause_requested=False, kill_requested=False)
        return Desired(session.pause_requested, session.kill_requested)

    async def write(self, goal: AgentGoal, /) -> bool:
        """Write an iteration of the goal; false when somebody else has ended it."""
        return await self._asked(lambda: self._records.iterate(self.begun, goal))

    async def _asked(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Return what the carrier answers, be it after an outage: that is no failure of the turn.

        Raises: asyncio.CancelledError when the turn is cancelled first.  TaskQueueUnavailable, when
                somebody must act.
        """
        while True:
            try:
                return await ask()
            except TaskQueueUnavailable as error:
                if not error.retryable:
                    raise
            if self.cancelled.is_set():
                raise asyncio.CancelledError
            await asyncio.sleep(_AGAIN_S)


class InlineTurns:
    """The turns of this process; made and used inside one event loop.

    Args: token: of this process, see `inline_token`; its records name it.
          turns_max: turns that run or wait, at most.
    """

    def __init__(
        self,
        ledger: TurnLedger,
        records: InlineRecords,
        bodies: Bodies,
        *,
        token: str,
        turns_max: int,
        observer: TurnObserver,
    ) -> None:
        self.token = token
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ledger = ledger
        self._records = records
        self._bodies = bodies
        self._turns_max = turns_max
        self._observer = observer
        self._lanes: dict[str, deque[_Entry]] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._looking: asyncio.Task[None] | None = None

    @property
    def depth(self) -> int:
        """Count the turns that run or wait."""
        return sum(len(lane) for lane in self._lanes.values())

    def put(self, envelope: AgentTurnEnvelope, /) -> None:
        """Run a turn once those before it in its session have ended; its record is there.

        Raises: TaskQueueFull.  TurnRejected, when it is not to wait and would have to.
        """
        if self._stopping:
            raise TaskQueueFull(BACKEND, "this process stops", retryable=True)
        lane = self._lanes.get(envelope.session_id, deque())
        earlier = [each for each in lane if is_in_the_way(each.envelope, envelope)]
        if envelope.when_busy == "reject" and earlier:
            raise TurnRejected(earlier[0].envelope.job_id)
        if self.depth >= self._turns_max:
            raise TaskQueueFull(
                BACKEND,
                f"{self.depth} turns run or wait here, {self._turns_max} at most",
                retryable=True,
                remedy="ask again later, or let workers run turns: AGENT_DISPATCH_BACKEND=queue",
            )
        for each in earlier if envelope.when_busy == "interrupt" else ():
            each.interrupted_by = each.interrupted_by or envelope.job_id
            if each.running is not None:
                each.running.cancelled.set()
        lane.append(_Entry(envelope))
        if len(lane) == 1:
            self._lanes[envelope.session_id] = lane
            working = asyncio.create_task(self._work(envelope.session_id, lane))
            self._working.add(working)
            working.add_done_callback(self._ended)

    # ------------------------------------------------------------------ one session
    async def _work(self, session_id: str, lane: deque[_Entry]) -> None:
        try:
            while lane:
                outcome = await self._outcome_of(lane[0], lane)
                lane.popleft()
                self._observer.turn_ended(outcome)
        finally:
            del self._lanes[session_id]

    async def _outcome_of(self, entry: _Entry, lane: deque[_Entry]) -> str:
        """See a turn through, and say what became of it."""
        envelope = entry.envelope
        if self._stopping:
            await self._insist(self._close(envelope, Status.FAILED, _STOPPED), envelope)
            return "failed"
        if entry.interrupted_by is not None:
            error = interrupted_by(entry.interrupted_by)
            await self._insist(self._close(envelope, Status.CANCELLED, error), envelope)
            return "interrupted"
        begun = await self._begin(envelope)
        if begun is None or isinstance(begun, Skip):
            return "skipped" if begun is not None else "failed"
        if isinstance(begun, Expire):
            return "expired"
        if not isinstance(begun, Begun):
            return "skipped"  # another process has it: somebody resumed a goal twice
        ending = await self._run(entry, begun)
        interrupted = entry.interrupted_by if ending.status != "completed" else None
        if interrupted is not None:
            ending = ending._replace(status="cancelled", error=interrupted_by(interrupted))
        others_wait = len(lane) > 1

        async def end() -> None:
            if not await self._records.end(begun, ending, others_wait=others_wait):
                extra = {"record": envelope.payload_ref, "session": envelope.session_id}
                _LOG.warning("turn_claim_lost", extra=extra)

        await self._insist(end, envelope)
        if interrupted is not None:
            return "interrupted"
        return "failed" if ending.status == "failed" else "completed"

    async def _begin(self, envelope: AgentTurnEnvelope) -> Begun | Decision | None:
        """Begin a turn; None when its record could not be written for a minute."""
        found: list[Begun | Decision] = []

        async def begin() -> None:
            found.append(await self._records.begin(envelope))

        await self._insist(begin, envelope)
        return found[0] if found else None

    async def _run(self, entry: _Entry, begun: Begun) -> Ending:
        envelope = entry.envelope
        running = entry.running = _Running(self._records, self._ledger, envelope, begun)
        if entry.interrupted_by is not None or self._stopping:
            running.cancelled.set()  # it came while the record was written
        record = begun.goal or begun.job
        agent_name = envelope.agent_name or (record or {}).get("agent_name", "")
        try:
            return await self._bodies.body_for(envelope.kind, agent_name)(running)
        except asyncio.CancelledError:
            if not running.cancelled.is_set():
                raise
            return Ending("failed", error=_STOPPED)
        except Exception as error:  # noqa: BLE001 - whatever a body raises is its failure
            extra = {"record": envelope.payload_ref, "session": envelope.session_id}
            _LOG.warning("turn_failed", exc_info=True, extra=extra)
            text = f"{type(error).__name__}: {error}"
            return Ending("failed", error=text[:_ERROR_CHARS_MAX])

    def _close(
        self, envelope: AgentTurnEnvelope, to: Status, error: str
    ) -> Callable[[], Awaitable[object]]:
        """Return what writes the end of a turn that does not run."""

        async def close() -> None:
            record = await self._ledger.record(envelope.payload_ref, envelope.kind)
            if record is not None and record.status is Status.PENDING:
                await self._ledger.move(record, to=to, error=error)

        return close

    async def _insist(
        self, write: Callable[[], Awaitable[object]], envelope: AgentTurnEnvelope
    ) -> None:
        """Write what came of a turn, be it after an outage of a minute."""
        extra = {"record": envelope.payload_ref, "session": envelope.session_id}
        for tries_left in reversed(range(_TRIES)):
            try:
                await write()
            except TaskQueueUnavailable as error:
                if not tries_left or not error.retryable or self._stopping:
                    # Whoever looks for what dead processes left behind finds it.
                    extra = {**extra, "reason": str(error)}
                    _LOG.error("turn_end_not_written", extra=extra)
                    return
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    def _ended(self, working: asyncio.Task[None]) -> None:
        self._working.discard(working)
        if not working.cancelled() and (error := working.exception()) and not self.failed.done():
            self.failed.set_exception(error)

    # ------------------------------------------------------------------ the process
    async def start(self, look_every_s: float = HEARTBEAT_MS / 1_000) -> None:
        """Say that this process is there, and tell of turns whose processes are not."""
        self._looking = asyncio.create_task(self._look_on(look_every_s), name="inline turns")
        self._looking.add_done_callback(self._ended)

    async def stop(self, drain_s: float) -> None:
        """Let turns end for so long; then they have failed.  Idempotent."""
        self._stopping = True
        started = self._looking is not None
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
            self._looking = None
        if self._working:
            await asyncio.wait(self._working, timeout=drain_s)
        for lane in self._lanes.values():
            if lane[0].running is not None:
                lane[0].running.cancelled.set()
        if self._working:
            await asyncio.wait(self._working, timeout=_GIVE_UP_S)
        for working in list(self._working):
            working.cancel()
        if started:
            try:
                await self._records.leave()
            except TaskQueueUnavailable as error:
                _LOG.warning("turn_worker_not_heard", extra={"reason": str(error)})

    async def _look_on(self, every_s: float) -> None:
        while True:
            try:
                await self._records.beat(list(self._lanes)[:SESSIONS_SHOWN_MAX])
                await self.tell_lost()
            except TaskQueueUnavailable as error:
                _LOG.warning("turn_worker_not_heard", extra={"reason": str(error)})
            await asyncio.sleep(every_s)

    async def tell_lost(self) -> int:
        """Fail what processes have left behind that are dead; return how much that was.

        Raises: TaskQueueUnavailable.
        """
        alive = {worker.worker_id for worker in await self._ledger.workers()}
        count = 0
        for kind in KINDS:
            for status in (Status.RUNNING, Status.PENDING):
                found = await self._ledger.records(kind=kind, status=status, limit=LISTED_MAX)
                for record in found:
                    if self._is_lost(record, alive) and await self._records.fail(record, _STOPPED):
                        extra = {"record": record.record_id, "session": record.session_id}
                        _LOG.warning("turn_lost_with_its_process", extra=extra)
                        count += 1
        return count

    def _is_lost(self, record: TurnRecord, alive: Collection[str]) -> bool:
        owner = record.claimed_by
        if not owner.endswith(_SUFFIX) or owner == self.token:
            return False
        return owner not in alive or is_dead(owner)


def is_dead(token: str) -> bool:
    """Whether another process of this host, as its token says, is known to be gone.

    A pid that is ours now was its before: a container's first process has the same one each time.
    """
    host, pid, _ = token.removesuffix(_SUFFIX).rsplit(":", 2)
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return int(pid) == os.getpid()
