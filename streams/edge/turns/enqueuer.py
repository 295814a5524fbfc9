"""Enqueueing turns: the record first, then the turn; whoever asked gets a handle.

    create_goal   session queued ─ goal pending ─ turn ─▸ handle
    dispatch      session queued ─ task pending ─ turn ─▸ handle
                                                   └ refused: record failed, and the error is raised

A record without a turn would wait for ever and a turn without a record be skipped: so the record
comes first, and what cannot be enqueued has failed, durably where that is still possible.  When the
carrier does not say whether it has the turn, a worker that gets it finds its record failed.

Source: seed queue-driven-agent-dispatch, "The model"; SEMANTICS 8.1 and 8.2.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from streams.core.turn.envelope import JOB_ID_PREFIX, AgentTurnEnvelope, EnvelopeError, parse_json
from streams.core.turn.goal_spec import GoalSpecError, parse_goal_spec
from streams.core.turn.record import DESCRIPTION_CHARS_MAX, NOT_ENQUEUED
from streams.edge.turns.inline import InlineTurns
from streams.edge.turns.task_queue import TurnRejected
from streams.edge.turns.turn_ledger import TurnLedger
from streams.edge.turns.turn_store import LISTED_MAX, Session, Status, TurnRecord
from streams.errors import TaskQueueUnavailable
from streams.observe import logs

__all__ = ["Enqueuer", "SessionBusy", "SessionKilled", "TurnRefused"]

_LOG = logs.logger(__name__)

METADATA_CHARS_MAX = 65_536
"""Of a session's metadata as ASCII; a larger goal stands in its own record alone."""

_INLINE_PREFIX = "orch-"
"""Begins the ids of tasks that run in the process that took them."""

_TURN_FIELDS = (
    *("session_id", "agent_name", "tenant"),
    *("priority", "prio_bucket", "deadline_unix", "when_busy"),
)
_TASK_FIELDS = ("description", "domain", *_TURN_FIELDS)
_DOMAIN_CHARS_MAX = 256
_NO_NAMES = (".", "..")  # what asks for such a path asks for another one
_UNFIT = re.compile(r"[\x00\ud800-\udfff]")  # what no store can hold


class TurnRefused(ValueError):  # noqa: N818 - the caller's to mend; nothing was written
    """What was asked for cannot be a turn: `problems` says all that is wrong with it."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class SessionBusy(TurnRefused):
    """A session that has unfinished turns does not take one that will not wait."""


class SessionKilled(TurnRefused):
    """A session that was killed takes no further turn."""


class Enqueuer:
    """Makes turns; safe for any number of tasks of one event loop.

    Args:    inline: runs turns in this process; without it they go into the ledger's queue.
             now_ms: ms since the epoch.  new_id: 32 hex digits that nobody else has.
    """

    def __init__(
        self,
        ledger: TurnLedger,
        *,
        inline: InlineTurns | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        new_id: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self._ledger = ledger
        self._inline = inline
        self._now_ms = now_ms
        self._new_id = new_id

    async def create_goal(self, asked: Mapping[str, Any], /) -> dict[str, Any]:
        """Create a goal and enqueue its first turn.

        Args:    asked: the fields of a goal, and `session_id` (a new one is made without it),
                 `agent_name`, `domain`, `tenant`, `priority`, `deadline_unix`,
                 `when_busy`.
        Returns: what the caller is told; the turn's handle as `dispatch`, unless it runs here.
        Raises:  TurnRefused; SessionKilled.  TaskQueueUnavailable, and the goal has failed;
                 SessionBusy, where the carrier knows at once, and it has failed as well.
        """
        turn = {name: asked[name] for name in _TURN_FIELDS if name in asked}
        rest = {name: asked[name] for name in asked if name not in {*_TURN_FIELDS, "domain"}}
        goal_id = f"goal-{self._new_id()}"
        envelope, problems = self._envelope(
            turn, kind="goal_loop", payload_ref=goal_id, session_id=f"sess-{self._new_id()}"
        )
        spec = None
        try:
            spec = parse_goal_spec(rest)
        except GoalSpecError as error:
            problems += error.problems
        domain = _domain(asked, problems)
        if envelope is None or spec is None or problems:
            raise TurnRefused(*problems)
        record = TurnRecord(
            record_id=goal_id,
            kind=envelope.kind,
            session_id=envelope.session_id,
            spec={**spec, "agent_name": envelope.agent_name},
        )
        handle = await self._enqueue(envelope, record, domain, {"goal_spec": dict(spec)})
        told = {
            "status": "success",
            "goal_id": goal_id,
            "session_id": envelope.session_id,
            "objective": spec["objective"],
            "validation_cmd": spec["validation_cmd"],
        }
        return told if self._inline is not None else {**told, "dispatch": handle}

    async def dispatch(self, asked: Mapping[str, Any], /) -> dict[str, str]:
        """Create an orchestrator task and enqueue its turn; without a session, it is its own.

        Args:    asked: `description`, and `agent_name`, `domain`, `session_id`, `tenant`,
                 `priority`, `deadline_unix`, `when_busy`.
        Returns: the turn's handle.
        Raises:  as `create_goal`.
        """
        problems = [
            f"{name!r} is no field of a task, expected one of {', '.join(_TASK_FIELDS)}"
            for name in asked
            if name not in _TASK_FIELDS
        ]
        job_id = f"{JOB_ID_PREFIX if self._inline is None else _INLINE_PREFIX}{self._new_id()}"
        turn = {name: asked[name] for name in _TURN_FIELDS if name in asked}
        envelope, wrong = self._envelope(
            turn, kind="orchestrator_task", payload_ref=job_id, session_id=job_id, job_id=job_id
        )
        problems += wrong
        description = asked.get("description")
        if (
            not isinstance(description, str)
            or not description.strip()
            or len(description) > DESCRIPTION_CHARS_MAX
            or _UNFIT.search(description)
        ):
            expected = f"a text of 1 to {DESCRIPTION_CHARS_MAX} characters, not blank"
            problems.append(
                f"description is missing or unusable, expected {expected}, without NUL and halves "
                "of characters"
            )
        domain = _domain(asked, problems)
        if envelope is None or problems:
            raise TurnRefused(*problems)
        spec = {"description": description, "agent_name": envelope.agent_name, "dependencies": []}
        record = TurnRecord(
            record_id=job_id, kind=envelope.kind, session_id=envelope.session_id, spec=spec
        )
        return await self._enqueue(envelope, record, domain, {})

    async def pause(self, session_id: str, /) -> bool:
        """Ask a session to pause before its next iteration; false when there is none."""
        return await self._ledger.ask(session_id, pause=True)

    async def kill(self, session_id: str, /) -> bool:
        """Ask a session to end, for good; what is paused is cancelled now.  False: no session."""
        if not await self._ledger.ask(session_id, kill=True):
            return False
        for record in await self._paused(session_id):
            await self._ledger.move(record, to=Status.CANCELLED, error="killed on request")
        return True

    async def resume(self, session_id: str, /) -> list[dict[str, str]] | None:
        """Take a pause back, and enqueue a turn for each goal that had paused.

        Returns: the handles of these turns; None when there is no such session.
        Raises:  SessionKilled.  TaskQueueUnavailable: what was not enqueued is paused as before.
        """
        session = await self._ledger.session(session_id)
        if session is None:
            return None
        if session.kill_requested:
            raise SessionKilled(f"session {session_id} was killed, so it cannot be resumed")
        await self._ledger.ask(session_id, pause=False)
        asked_again = await self._ledger.session(session_id)
        if asked_again is not None and asked_again.kill_requested:
            raise SessionKilled(f"session {session_id} was killed, so it cannot be resumed")
        tenant = session.metadata.get("tenant", "")
        handles: list[dict[str, str]] = []
        for record in await self._paused(session_id):
            pending = await self._ledger.move(record, to=Status.PENDING)
            if pending is None:
                continue  # another call resumed or cancelled it
            envelope = AgentTurnEnvelope(
                job_id=f"{JOB_ID_PREFIX}{self._new_id()}",
                session_id=session_id,
                kind="goal_loop",
                payload_ref=record.record_id,
                agent_name=record.spec.get("agent_name", ""),
                tenant=tenant if isinstance(tenant, str) else "",
                enqueued_at_ms=self._now_ms(),
            )
            try:
                await self._put(envelope)
            except TaskQueueUnavailable:
                await self._ledger.move(pending, to=Status.PAUSED)
                raise
            handles.append(self._handle(envelope))
        return handles

    async def _paused(self, session_id: str) -> list[TurnRecord]:
        found = await self._ledger.records(
            kind="goal_loop", session_id=session_id, status=Status.PAUSED, limit=LISTED_MAX
        )
        return list(reversed(found))  # the first to pause goes on first

    async def _enqueue(
        self,
        envelope: AgentTurnEnvelope,
        record: TurnRecord,
        domain: str,
        metadata: dict[str, Any],
    ) -> dict[str, str]:
        """Write session, record and turn, in this order, and return the handle."""
        session_id, tenant = envelope.session_id, envelope.tenant
        known = await self._ledger.session(session_id)
        if known is not None and known.kill_requested:
            raise SessionKilled(f"session {session_id} was killed, so it takes no further turn")
        metadata = {"payload_ref": record.record_id, "tenant": tenant, **metadata}
        if len(json.dumps(metadata)) > METADATA_CHARS_MAX:
            metadata.pop("goal_spec", None)
        session = Session(session_id=session_id, domain=domain, metadata=metadata)
        if self._inline is not None:  # so that it is known who was to run it, should it be lost
            record = replace(record, claimed_by=self._inline.token)
        try:
            await self._ledger.open_session(session, tenant=tenant)
            await self._ledger.create(record, tenant=tenant)
            await self._put(envelope)
        except TaskQueueUnavailable as error:
            # Also what could not be written may have been: a carrier does not always say.
            await self._note_failure(record, str(error), is_new=known is None)
            raise
        except TurnRejected as rejected:
            await self._ledger.move(record, to=Status.FAILED, error=str(rejected))
            raise SessionBusy(str(rejected)) from rejected
        return self._handle(envelope)

    async def _put(self, envelope: AgentTurnEnvelope) -> None:
        if self._inline is None:
            await self._ledger.put(envelope)
        else:
            self._inline.put(envelope)

    def _handle(self, envelope: AgentTurnEnvelope) -> dict[str, str]:
        handle = envelope.handle()
        return handle if self._inline is None else {**handle, "dispatch": "inline"}

    async def _note_failure(self, record: TurnRecord, reason: str, *, is_new: bool) -> None:
        """Write that a turn could not be enqueued; the carrier may be gone for this as well."""
        extra = {"record": record.record_id, "session": record.session_id, "reason": reason}
        _LOG.warning("turn_not_enqueued", extra=extra)
        failing: list[Awaitable[object]] = [
            self._ledger.move(record, to=Status.FAILED, error=f"{NOT_ENQUEUED}{reason}")
        ]
        if is_new:
            failing.append(self._ledger.fail_session(record.session_id))
        # Each is tried: what gets no ack in time may be written all the same.
        for outcome in await asyncio.gather(*failing, return_exceptions=True):
            if isinstance(outcome, TaskQueueUnavailable):
                extra = {**extra, "reason": str(outcome)}
                _LOG.error("turn_failure_not_recorded", extra=extra)
            elif isinstance(outcome, BaseException):
                raise outcome

    def _envelope(
        self,
        turn: Mapping[str, Any],
        *,
        kind: str,
        payload_ref: str,
        session_id: str,
        job_id: str = "",
    ) -> tuple[AgentTurnEnvelope | None, list[str]]:
        """Return an envelope, or all that is wrong with what was asked for."""
        fields = {
            "session_id": session_id,
            **{name: value for name, value in turn.items() if value is not None},
            "job_id": job_id or f"{JOB_ID_PREFIX}{self._new_id()}",
            "kind": kind,
            "payload_ref": payload_ref,
        }
        if fields["session_id"] in _NO_NAMES:
            expected = "a name that a URL can have as a part of its path"
            return None, [f"session_id is {fields['session_id']!r}, expected {expected}"]
        try:
            value = json.dumps(fields).encode()
            return parse_json(value, enqueued_at_ms=self._now_ms()), []
        except EnvelopeError as error:
            return None, list(error.problems)


def _domain(asked: Mapping[str, Any], problems: list[str]) -> str:
    """Return the domain of a session; with a problem noted when it is none."""
    found = asked.get("domain")
    if found is None:
        return ""
    if isinstance(found, str) and len(found) <= _DOMAIN_CHARS_MAX and found.isprintable():
        return found
    expected = f"a text of at most {_DOMAIN_CHARS_MAX} characters without control characters"
    problems.append(f"domain is unusable, expected {expected}")
    return ""
