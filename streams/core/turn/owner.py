"""An owner of a partition of turns at work: what it begins, ends and gives back, and what it says.

    read ──▸ take ──▸ best ──▸ begin ─┬─ RUN ────▸ its body runs once the claim is durable
                                      ├─ UNSURE ─▸ put_back when all records were read
                                      ├─ WAITS ──▸ it is the next of its session again
                                      └─ DONE ───▸ it has ended without running
              └──▸ overrule ──▸ end_overruled ──▸ the same, of turns whose session was busy
                                         end, give_back ◂── its body

Nothing here is durable by itself: what is to be written gathers, and `batch` hands it over together
with the offset and bookmark that belong to it, to be committed as one transaction before anything
that was begun in it runs.  When one is not committed, the owner is done for: another is loaded.

The API creates records before turns, but they are read apart: a turn whose record says that there
is nothing to do is UNSURE until all records that were there when it was read have been folded.

Invariants: those of Lanes; at most PENDING_MAX outputs gather before taking and beginning pause;
RECENT_MAX ends are known by job.

Source: DESIGN "A turn", decisions A1, A2, A33; SEMANTICS 8.5 to 8.9.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from streams.core.record import Position
from streams.core.turn import words
from streams.core.turn.claim import ENDED, Decision, Expire, Run, Skip, Wait, decide
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError
from streams.core.turn.gathering import Batch
from streams.core.turn.held import Held, Loaded
from streams.core.turn.lanes import MAX_BEYOND_PREFIX, Lanes, Turn
from streams.core.turn.parting import Parting
from streams.core.turn.pen import Pen
from streams.core.turn.policies import Policies
from streams.core.turn.progress import Progress
from streams.core.turn.record import (
    End,
    Holder,
    claimed_goal,
    claimed_job,
    outcome_of,
    released_goal,
    released_job,
)
from streams.core.wire import AgentGoal, AgentJobStatus, TurnOutcome, TurnReleaseReason

__all__ = ["LOOK_AGAIN_MS", "PENDING_MAX", "RECENT_MAX", "Begun", "Owner"]

PENDING_MAX = 1_000
"""Outputs that gather before nothing more is taken or begun; what runs may add its ends."""

RECENT_MAX = 10_000
"""Jobs whose ends are known by their id: a second turn of one is skipped."""

LOOK_AGAIN_MS = 1_000
"""Between two looks at a record that somebody else has."""

_DUPLICATE = "a turn of this job has ended before"


class Begun(Enum):
    """What came of beginning a turn."""

    RUN = auto()
    UNSURE = auto()
    WAITS = auto()
    DONE = auto()


class Owner:
    """A partition that a worker owns.

    Args: token, host: of the worker.
          recent_max: see RECENT_MAX.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        token: str,
        host: str,
        max_beyond_prefix: int = MAX_BEYOND_PREFIX,
        recent_max: int = RECENT_MAX,
    ) -> None:
        self.partition = loaded.partition
        self.memory = loaded.memory
        self.holder = Holder(token=token, host=host, fence=loaded.memory.next_fence)
        self.lanes = Lanes(loaded.committed, max_beyond_prefix=max_beyond_prefix)
        self.progress = Progress(loaded, fence=self.holder.fence)
        self._recent_max = recent_max
        self._held: dict[int, Held] = {}
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._pen = Pen(loaded.partition, loaded.memory, token)
        self.parting = Parting(loaded.partition, self._pen.gathering, loaded.memory)
        self._policies = Policies(self.lanes, lambda offset: self._held[offset].envelope)

    # ------------------------------------------------------------------ reading
    @property
    def wants_more(self) -> bool:
        """Whether the next record of the turns may be taken."""
        return self.lanes.wants_more and not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether so much is to be written that nothing more is begun meanwhile."""
        return len(self._pen.gathering) >= PENDING_MAX

    def take(self, envelope: AgentTurnEnvelope, at: Position, *, arrived_ms: int) -> None:
        """Take the next turn of the log."""
        self.progress.took(at.offset)
        finished = self.memory.history.has_ended(at.offset)
        self.lanes.take(at.offset, envelope.session_id, envelope.bucket, finished=finished)
        if not finished:
            turn = Turn(envelope.bucket, at.offset, envelope.session_id)
            self._held[at.offset] = Held(turn, envelope, at, arrived_ms)
            self.memory.pin(envelope)
            if envelope.when_busy != "enqueue" and not self._is_duplicate(envelope.job_id):
                self._policies.took(turn)

    def bury(
        self,
        error: EnvelopeError,
        at: Position,
        *,
        key: bytes | None,
        raw: bytes | None,
        timestamp_ms: int,
    ) -> None:
        """Take the next record of the log, which is no turn: it goes to the dead letters."""
        self.progress.took(at.offset)
        self.lanes.take(at.offset, "", 0, finished=True)
        by = self.holder
        letter = words.dead_lettered(error, at, by, key=key, raw=raw, timestamp_ms=timestamp_ms)
        self._pen.gathering.say(letter, at)

    def learn(self, kind: str, key: str, value: Mapping[str, Any] | None) -> None:
        """Take a record of the API: a new one, or what people want of a session."""
        self.parting.learn(kind, key, value, self.stands_at)

    @property
    def stands_at(self) -> Position:
        """Where all turns before it have ended."""
        return Position(words.TURNS, self.partition, self.lanes.committable)

    # ------------------------------------------------------------------ beginning
    def best(self, now_ms: int) -> Held | None:
        """Return the turn that may be begun next; None when none may."""
        turn = None if self.is_full else self.lanes.best(now_ms)
        return None if turn is None else self._held[turn.offset]

    def begin(self, held: Held, now_ms: int) -> Begun:
        """Begin the turn that `best` named."""
        self.lanes.start(held.turn)
        self._policies.relent(held.turn)
        if self._is_duplicate(held.envelope.job_id):
            return self._skip(held, _DUPLICATE, now_ms)
        match self._decision(held, now_ms):
            case Run():
                if self._may_have_forgotten_session(held):
                    return Begun.UNSURE
                self._claim(held, now_ms)
                return Begun.RUN
            case Skip(reason):
                return self._skip(held, reason, now_ms) if held.certain else Begun.UNSURE
            case Expire(error):
                return self._expire(held, error, now_ms)
            case Wait(until_ms):
                soon_ms = now_ms + LOOK_AGAIN_MS
                self._put_back(held, soon_ms if until_ms is None else min(until_ms, soon_ms))
                return Begun.WAITS

    def _claim(self, held: Held, now_ms: int) -> None:
        envelope, by = held.envelope, self.holder
        before = self.memory.history.attempts(held.at.offset)
        if held.tried is not None:
            before = held.tried.attempt
        held.tried = words.Tried(before + 1, now_ms)
        self._pen.say(words.claimed(envelope, held.at, by, attempt=before + 1, now_ms=now_ms), held)
        if (goal := self._pen.goal_of(held)) is not None:
            self._pen.goal(held, claimed_goal(goal, by, job_id=envelope.job_id, now_ms=now_ms))
        else:
            job = self.memory.job(envelope.payload_ref)
            assert job is not None, "what may run has a record"
            self._pen.job(held, claimed_job(job, by, now_ms=now_ms))
        self._pen.session_began(held, now_ms)

    def _decision(self, held: Held, now_ms: int) -> Decision:
        record, fence = self.memory.claimable(held.envelope), self.holder.fence
        return decide(held.envelope, record, now_ms=now_ms, fence=fence)

    def _is_duplicate(self, job_id: str) -> bool:
        return job_id in self._recent or self.memory.has_ended(job_id)

    def _may_have_forgotten_session(self, held: Held) -> bool:
        return not held.certain and self.memory.may_lack_session(held.envelope.session_id)

    # ------------------------------------------------------------------ busy sessions
    def overrule(self, now_ms: int) -> list[Held]:
        """Let turns interrupt others, as far as they may; return which of these run.

        Their bodies are to be told to end at once; however they do, `end` says what it comes to.
        """
        running: list[Held] = []
        for turn in self._policies.interrupting:
            if isinstance(self._decision(self._held[turn.offset], now_ms), Run):
                found = self._policies.interrupt(turn)
                running += [self._held[each.offset] for each in found]
        return running

    def best_overruled(self) -> Held | None:
        """Return the turn that is to end without running and may; it takes no slot."""
        turn = None if self.is_full else self.lanes.best_aside()
        return None if turn is None else self._held[turn.offset]

    def is_overruled(self, held: Held) -> bool:
        """Whether a turn is not to run, or to run no more."""
        return self._policies.overruled(held.at.offset) is not None

    def end_overruled(self, held: Held, now_ms: int) -> Begun:
        """End the turn that `best_overruled` named: DONE, or UNSURE."""
        self.lanes.start(held.turn)
        word = self._policies.overruled(held.at.offset)
        assert word is not None, "only what was overruled is set aside"
        record = self.memory.claimable(held.envelope)
        status = None if record is None else record.status
        if self._is_duplicate(held.envelope.job_id):
            self._finish(held, "skipped", status, _DUPLICATE, now_ms)
            return Begun.DONE
        is_over = status is None or status == "paused" or status in ENDED
        if is_over and not held.certain:
            return Begun.UNSURE
        is_left = self._policies.is_record_shared(held.turn)
        if is_over and status is not None:
            reason = "paused" if status == "paused" else "terminal"
            self._finish(held, "skipped", status, reason, now_ms)
        elif is_over or is_left:
            self._finish(held, word.outcome, status, word.error, now_ms)
        else:
            self._pen.end_record(held, word.status, word.error, now_ms)
            self._finish(held, word.outcome, word.status, word.error, now_ms)
        return Begun.DONE

    # ------------------------------------------------------------------ what runs
    def write(self, held: Held, goal: AgentGoal) -> bool:
        """Take an iteration of a goal that runs; return whether it is to be written now.

        What ends the goal is written with the end of its turn.
        """
        assert held.goal is not None, "only a claimed goal has iterations"
        held.goal = goal
        if goal["status"] in ENDED:
            return False
        self._pen.goal(held, goal)
        return True

    def end(
        self,
        held: Held,
        status: End,
        *,
        result: str | None = None,
        error: str | None = None,
        goal: AgentGoal | None = None,
        now_ms: int,
    ) -> None:
        """End a turn whose body has returned; `goal` is its record after the last iteration.

        One that was interrupted is cancelled, unless it was completed all the same, or had failed.
        """
        goal = goal or held.goal
        word = self._policies.overruled(held.at.offset)
        has_ended = status == "completed" or (goal is not None and goal["status"] in ENDED)
        if word is not None and not has_ended:
            status, result, error = word.status, None, word.error
        else:
            word = None
        stands, result, error = self._pen.end_run(held, goal, status, result, error, now_ms)
        self._finish(held, word.outcome if word else outcome_of(stands), stands, error, now_ms)
        self._leave_session(held, stands, result, now_ms)

    def give_back(
        self,
        held: Held,
        reason: TurnReleaseReason,
        now_ms: int,
        *,
        not_before_ms: int | None = None,
    ) -> None:
        """Give back a turn that was claimed: it is begun again, here not before that moment."""
        by = self.holder
        word = words.released(held.envelope, held.at, by, reason=reason, now_ms=now_ms)
        self._pen.say(word, held)
        if held.written is not None:  # an iteration that was not written is done anew
            self._pen.goal(held, released_goal(held.written, now_ms=now_ms))
        elif held.job is not None:
            self._pen.job(held, released_job(held.job, now_ms=now_ms))
        self._pen.session_waits(held, now_ms)
        self._put_back(held, not_before_ms)

    def is_known(self, held: Held) -> bool:
        """Whether there is something to do for a turn that was UNSURE."""
        record = self.memory.claimable(held.envelope)
        if record is None or record.status in (*ENDED, "paused"):
            return False
        return not self._may_have_forgotten_session(held)

    def put_back(self, held: Held, *, certain: bool = False) -> None:
        """Put back a turn that was UNSURE, since it may be decided now."""
        held.certain = held.certain or certain
        self._put_back(held)

    def _put_back(self, held: Held, not_before_ms: int | None = None) -> None:
        held.goal = held.written = held.job = None
        self.lanes.give_back(held.turn, not_before_ms=not_before_ms)
        self._policies.given_back(held.turn)

    # ------------------------------------------------------------------ ends
    def _skip(self, held: Held, reason: str, now_ms: int) -> Begun:
        record = self.memory.claimable(held.envelope)
        status = None if record is None else record.status
        self._finish(held, "skipped", status, reason, now_ms)
        self._leave_session(held, status, None, now_ms)
        return Begun.DONE

    def _expire(self, held: Held, error: str, now_ms: int) -> Begun:
        self._pen.end_record(held, "failed", error, now_ms)
        self._finish(held, "expired", "failed", error, now_ms)
        self._leave_session(held, "failed", None, now_ms)
        return Begun.DONE

    def _finish(
        self,
        held: Held,
        outcome: TurnOutcome,
        status: AgentJobStatus | None,
        error: str | None,
        now_ms: int,
    ) -> None:
        word = words.finished(
            held.envelope,
            held.at,
            self.holder,
            outcome=outcome,
            record_status=status,
            error=error,
            tried=held.tried,
            now_ms=now_ms,
        )
        self._pen.said_since += 1
        self._pen.gathering.end(word, held.at, outcome)
        self.lanes.finish(held.turn)
        self._policies.ended(held.turn)
        del self._held[held.at.offset]
        self.memory.unpin(held.envelope)
        self._recent[held.envelope.job_id] = None
        if len(self._recent) > self._recent_max:
            self._recent.popitem(last=False)

    def _leave_session(
        self, held: Held, status: AgentJobStatus | None, result: str | None, now_ms: int
    ) -> None:
        others_wait = self.lanes.waits_in(held.envelope.session_id)
        self._pen.session_left(held, status, result, now_ms, others_wait=others_wait)

    # ------------------------------------------------------------------ writing
    @property
    def is_due(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._pen.gathering) or self.progress.is_due(self.lanes.committable)

    @property
    def said_since(self) -> int:
        """Words about turns since it was told where the claims end."""
        return self._pen.said_since

    def claims_end_at(self, offset: int) -> None:
        """Note where the claims end, with all earlier batches in them; it may be more by now."""
        self.progress.claims_end_at(offset)
        self._pen.said_since = 0

    def batch(self) -> Batch:
        """Hand over all that is to be written now, as one transaction."""
        offset = self.lanes.committable
        bookmark = self.progress.commit(offset, self.lanes.next_offset)
        return self._pen.gathering.batch(offset, bookmark)
