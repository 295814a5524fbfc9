"""What the owner of a partition knows of its turns: what is loaded before the first one is taken.

It is folded from `agent.turns.claims` (from a bookmark on), `agent.jobs` and `agent.sessions` of
the partition's number, each to its stable end; then it is the owner who writes them.  Afterwards
`fold` takes records as they are committed or come from the API, and claims no more: the owner's
lanes know what has ended since, and ends would pile up here.

The last record of a key is what counts, as for everybody who reads the topics.  Of a goal or task
that has ended its status alone is kept: its body is of no use to a worker, and there may be many.

Invariants: of each kind at most `kept_max` are kept, those that were written last, and besides them
what belongs to turns that are pinned.  What was forgotten may be looked up in the topics:
`forgot_records` and `forgot_sessions` say whether there is such a thing.  An end that was forgotten
is needed by nobody: a turn of it is skipped in any case.

Source: DESIGN law 7, "A turn"; SEMANTICS 8.6, 10.2.27.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from streams.core.turn.claim import ENDED, Claimable, claimable_goal, claimable_job
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.history import History
from streams.core.turn.record import desired_key, goal_key, job_key, session_record_key
from streams.core.turn.session import asked, wished
from streams.core.wire import (
    AgentGoal,
    AgentJob,
    AgentJobStatus,
    AgentSession,
    AgentSessionDesired,
)

__all__ = ["KEPT_MAX", "Memory"]

KEPT_MAX = 20_000
"""Goals, tasks, sessions, and ends, of a partition."""

_Kept = TypeVar("_Kept", AgentGoal, AgentJob)
_Any = TypeVar("_Any")
_OF_CLAIMS = frozenset({"turn_claimed", "turn_claim_released", "turn_finished"})


class Memory:
    """Claims and records of one partition.

    Args: committed: the group's offset of `agent_turns`.
          fence: of the owner that committed it, as its bookmark says; 0 without one.
          since_ms: when the first of the records was written that are folded; 0 for all.
    """

    def __init__(
        self, committed: int, *, fence: int = 0, kept_max: int = KEPT_MAX, since_ms: int = 0
    ) -> None:
        self._kept_max = kept_max
        self._since_ms = since_ms
        self._pins: dict[str, int] = {}
        self.forgot_records = self.forgot_sessions = since_ms > 0
        self._forgot_wishes = False
        self.history = History(committed, fence=fence)
        self._fence = 0
        self._ended_jobs: set[str] = set()
        self._goals: OrderedDict[str, AgentGoal] = OrderedDict()
        self._jobs: OrderedDict[str, AgentJob] = OrderedDict()
        self._sessions: OrderedDict[str, AgentSession] = OrderedDict()
        self._desired: OrderedDict[str, AgentSessionDesired] = OrderedDict()
        self._ended: OrderedDict[str, Claimable] = OrderedDict()

    @property
    def next_fence(self) -> int:
        """The fence of the owner that loads this: higher than that of any claim or record.

        Records keep it where the claims are gone with their retention.
        """
        return max(self.history.next_fence, self._fence + 1)

    def fold(self, kind: str, key: str, value: Mapping[str, Any] | None, /) -> None:
        """Take the next record of one of the three topics; None forgets its key.

        A kind of a later release says nothing here.
        """
        if value is None:
            for kept in (self._goals, self._jobs, self._sessions, self._desired, self._ended):
                kept.pop(key, None)
        elif kind in _OF_CLAIMS:
            self.history.fold(kind, value)
            if kind == "turn_finished" and self.history.has_ended(value["turn_offset"]):
                self._ended_jobs.add(value["job_id"])
        elif kind == "agent_goal":
            goal = cast("AgentGoal", value)
            self._keep(key, self._goals, goal, claimable_goal(goal))
        elif kind == "agent_job":
            job = cast("AgentJob", value)
            self._keep(key, self._jobs, job, claimable_job(job))
        elif kind == "agent_session":
            forgot = self._put(self._sessions, key, cast("AgentSession", value))
            self.forgot_sessions = self.forgot_sessions or forgot
        elif kind == "agent_session_desired":
            wish = wished(self._desired.get(key), cast("AgentSessionDesired", value))
            forgot = self._put(self._desired, key, wish)
            self._forgot_wishes = self._forgot_wishes or forgot

    def ended(self, key: str, status: AgentJobStatus) -> None:
        """Note that a goal or task that was looked up has ended."""
        self._put(self._ended, key, Claimable(status=status))

    def knows(self, key: str) -> bool:
        """Whether a session, or what is wanted of one, is known by its key."""
        return key in self._sessions or key in self._desired

    def may_lack_session(self, session_id: str) -> bool:
        """Whether there may be a session, or a wish about it, that is not known here.

        Who made a session asked for nothing before; the clocks of two APIs are close enough.
        """
        session = self.session(session_id)
        if session is None:
            return self.forgot_sessions
        if self.desired(session_id) is not None:
            return False
        return self._forgot_wishes or session["created_at_ms"] < self._since_ms

    def no_wish(self, session_id: str) -> None:
        """Note that it was looked up whether anything is wanted of a session: nothing is."""
        self._put(self._desired, desired_key(session_id), asked(session_id, None, now_ms=0))

    def may_forget(self, key: str, before_ms: int) -> bool:
        """Whether nothing is known that needs a record, or has changed it since `before_ms`."""
        if key in self._pins or key in self._goals or key in self._jobs:
            return False
        session, desired = self._sessions.get(key), self._desired.get(key)
        session_at_ms = before_ms if session is None else session["updated_at_ms"]
        desired_at_ms = before_ms if desired is None else desired["requested_at_ms"]
        return max(session_at_ms, desired_at_ms) <= before_ms

    def has_ended(self, job_id: str) -> bool:
        """Whether the end of a turn of this job, at or past the committed offset, is written."""
        return job_id in self._ended_jobs

    def claimable(self, envelope: AgentTurnEnvelope) -> Claimable | None:
        """Return what a decision needs of a turn's goal or task; None when there is none."""
        of_goal = envelope.kind == "goal_loop"
        key = goal_key(envelope.payload_ref) if of_goal else job_key(envelope.payload_ref)
        if (ended := self._ended.get(key)) is not None:
            return ended
        if (goal := self._goals.get(key)) is not None:
            return claimable_goal(goal)
        return None if (job := self._jobs.get(key)) is None else claimable_job(job)

    def goal(self, goal_id: str) -> AgentGoal | None:
        """Return a goal that has not ended."""
        return self._goals.get(goal_key(goal_id))

    def job(self, job_id: str) -> AgentJob | None:
        """Return a task that has not ended."""
        return self._jobs.get(job_key(job_id))

    def session(self, session_id: str) -> AgentSession | None:
        """Return a session as it stands."""
        return self._sessions.get(session_record_key(session_id))

    def desired(self, session_id: str) -> AgentSessionDesired | None:
        """Return what people want of a session; None when nobody asked for anything."""
        return self._desired.get(desired_key(session_id))

    def _keep(
        self, key: str, open_ones: OrderedDict[str, _Kept], value: _Kept, standing: Claimable
    ) -> None:
        self._fence = max(self._fence, standing.fence)
        if standing.status in ENDED:
            open_ones.pop(key, None)
            self._put(self._ended, key, Claimable(status=standing.status))
        else:
            self._ended.pop(key, None)
            forgot = self._put(open_ones, key, value)
            self.forgot_records = self.forgot_records or forgot

    def _put(self, kept: OrderedDict[str, _Any], key: str, value: _Any) -> bool:
        """Keep a value as the newest of its kind; return whether the oldest had to go."""
        kept[key] = value
        kept.move_to_end(key)
        forgot = False
        for _ in range(len(kept) if len(kept) > self._kept_max else 0):
            oldest = next(iter(kept))
            if oldest in self._pins or oldest == key:
                kept.move_to_end(oldest)
                continue
            del kept[oldest]
            forgot = True
            if len(kept) <= self._kept_max:
                break
        return forgot

    def pin(self, envelope: AgentTurnEnvelope) -> None:
        """Keep what belongs to a turn, as long as it has not ended."""
        for key in _keys(envelope):
            self._pins[key] = self._pins.get(key, 0) + 1

    def unpin(self, envelope: AgentTurnEnvelope) -> None:
        """Note that a turn which was pinned has ended."""
        for key in _keys(envelope):
            left = self._pins[key] - 1
            if left:
                self._pins[key] = left
            else:
                del self._pins[key]


def _keys(envelope: AgentTurnEnvelope) -> tuple[str, str, str]:
    key_of = goal_key if envelope.kind == "goal_loop" else job_key
    session_id = envelope.session_id
    return key_of(envelope.payload_ref), session_record_key(session_id), desired_key(session_id)
