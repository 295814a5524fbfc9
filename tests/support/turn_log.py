"""A partition of agent turns as its owners write it, one after another, in a log in memory."""

from __future__ import annotations

from typing import Any, cast

from streams.audit.log import LogRecord
from streams.audit.memory_log import MemoryLog
from streams.audit.turn_invariants import TurnVerdict, judge_turns
from streams.codec import Codec
from streams.core.record import Output, Position
from streams.core.turn import words
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError
from streams.core.turn.record import (
    Holder,
    claimed_goal,
    ended_goal,
    goal_key,
    new_goal,
    released_goal,
    resumed_goal,
    session_record_key,
)
from streams.core.turn.session import began, ended, new_session
from streams.core.turn.words import CLAIMS, DEAD_LETTERS, TURNS
from streams.core.wire import AgentGoal, AgentJobStatus, AgentSession, TurnOutcome
from streams.edge.turns.turn_codec import CAUSE, decode_turn, encode_turn

GROUP = "agent-dispatch"
JOBS, SESSIONS = "agent.jobs", "agent.sessions"
CODEC = Codec()


class TurnLog:
    """One partition; each turn has a goal of its own, unless it is given one."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        for topic in (TURNS, CLAIMS, DEAD_LETTERS, JOBS, SESSIONS):
            self.log.create(topic, 1)
        self.now_ms = 1_000
        self.holder = Holder(token="w1", host="h", fence=1)
        self.turns: dict[int, AgentTurnEnvelope] = {}
        self.goals: dict[str, AgentGoal] = {}
        self.sessions: dict[str, AgentSession] = {}
        self.over: set[int] = set()
        self.attempts: dict[int, int] = {}

    # ------------------------------------------------------------------ what producers do
    def enqueue(self, session_id: str = "s", goal_id: str | None = None) -> int:
        """Append a turn, and the goal that it is about."""
        number = len(self.records(TURNS))
        name = goal_id or f"goal-{number}"
        if name not in self.goals:
            spec: Any = {
                "objective": "done",
                "end_state": "",
                "validation_cmd": None,
                "max_iterations": 1,
                "constraints": [],
            }
            self.keep(new_goal(name, session_id, spec, now_ms=self.now_ms), by_owner=False)
        if session_id not in self.sessions:
            self.keep_session(new_session(session_id, now_ms=self.now_ms), by_owner=False)
        envelope = AgentTurnEnvelope(
            job_id=f"job-{number}", session_id=session_id, payload_ref=name, enqueued_at_ms=1
        )
        # Producers elsewhere write JSON, those here the record.
        as_json = envelope.json_bytes() if number % 2 else encode_turn(CODEC, envelope)
        offset = self._append(TURNS, session_id, as_json, "agent_turn")
        self.turns[offset] = envelope
        return offset

    def poison(self, value: bytes | None = b"{") -> int:
        """Append what is no turn."""
        return self._append(TURNS, "s", value, "agent_turn")

    def resume(self, goal_id: str) -> int:
        """Resume a paused goal, which enqueues another turn."""
        goal = self.goals[goal_id]
        self.keep(resumed_goal(goal, now_ms=self.now_ms), by_owner=False)
        return self.enqueue(goal["session_id"], goal_id)

    # ------------------------------------------------------------------ what owners do
    def take_over(self, token: str) -> None:
        """The next owner comes."""
        self.holder = Holder(token=token, host="h", fence=self.holder.fence + 1)

    def claim(self, offset: int) -> None:
        """Begin a turn."""
        envelope = self.turns[offset]
        attempt = self.attempts[offset] = self.attempts.get(offset, 0) + 1
        goal = self.goals[envelope.payload_ref]
        claimed = claimed_goal(goal, self.holder, job_id=envelope.job_id, now_ms=self.now_ms)
        at = self._at(offset)
        said = words.claimed(envelope, at, self.holder, attempt=attempt, now_ms=self.now_ms)
        self._say(said)
        self.keep(claimed)
        self.keep_session(began(self.sessions[envelope.session_id], now_ms=self.now_ms))

    def release(self, offset: int) -> None:
        """Give a turn back."""
        envelope = self.turns[offset]
        self._say(
            words.released(
                envelope, self._at(offset), self.holder, reason="handover", now_ms=self.now_ms
            )
        )
        self.keep(released_goal(self.goals[envelope.payload_ref], now_ms=self.now_ms))
        self.keep_session({**self.sessions[envelope.session_id], "status": "queued"})

    def finish(self, offset: int, status: Any = "completed") -> None:
        """End a turn that runs; its goal is then `status`."""
        envelope = self.turns[offset]
        goal = ended_goal(
            self.goals[envelope.payload_ref],
            status,
            executed_by=self.holder.token,
            now_ms=self.now_ms,
        )
        tried = words.Tried(self.attempts[offset], self.now_ms)
        self._end(offset, "failed" if status == "failed" else "completed", status, tried)
        self.keep(goal)
        self._leave(offset, status)

    def skip(self, offset: int) -> None:
        """End a turn that has nothing to do."""
        status = self.goals[self.turns[offset].payload_ref]["status"]
        self._end(offset, "skipped", status, None)
        self._leave(offset, status)

    def skip_unknown(self, offset: int) -> None:
        """End a turn whose goal is not there any more."""
        self._end(offset, "skipped", None, None)

    def reject(self, offset: int) -> None:
        """End a turn that shall not run, since its session is busy; its goal has failed."""
        goal = self.goals[self.turns[offset].payload_ref]
        self._end(offset, "rejected", "failed", None)
        self.keep(ended_goal(goal, "failed", executed_by=self.holder.token, now_ms=self.now_ms))

    def bury(self, offset: int) -> None:
        """Keep what is no turn."""
        at = self._at(offset)
        raw = self.records(TURNS)[offset].value
        try:
            decode_turn(CODEC, raw, at, 0)
        except EnvelopeError as error:
            self._say(
                words.dead_lettered(error, at, self.holder, key=b"s", raw=raw, timestamp_ms=0)
            )

    def commit(self, offset: int) -> None:
        """Commit the group's offset."""
        self.log.groups[GROUP, TURNS, 0] = offset

    # ------------------------------------------------------------------ the log itself
    def records(self, topic: str) -> list[LogRecord]:
        """The records of a topic, to look at or to change."""
        return self.log.topics[topic][0]

    def said(self) -> list[tuple[str, dict[str, Any]]]:
        """Every word, decoded."""
        return [CODEC.decode(each.value or b"") for each in self.records(CLAIMS)]

    def say_again(self, said: list[tuple[str, dict[str, Any]]]) -> None:
        """Put these words in the place of those that are there."""
        self.log.topics[CLAIMS][0].clear()
        for kind, value in said:
            self._append(CLAIMS, value["job_id"], CODEC.encode(kind, value), kind)

    def verdict(self) -> TurnVerdict:
        """What the audit finds."""
        [verdict] = judge_turns(self.log, CODEC)
        return verdict

    def told(self) -> list[str]:
        """What the audit finds wrong."""
        return [f"{each.position}: {each.what}" for each in self.verdict().violations]

    def _end(
        self, offset: int, outcome: TurnOutcome, status: Any, tried: words.Tried | None
    ) -> None:
        said = words.finished(
            self.turns[offset],
            self._at(offset),
            self.holder,
            outcome=outcome,
            record_status=status,
            tried=tried,
            now_ms=self.now_ms,
        )
        self._say(said)
        self.over.add(offset)

    def keep(self, goal: AgentGoal, *, by_owner: bool = True) -> None:
        """Write a goal as it stands now."""
        self.goals[goal["goal_id"]] = goal
        value = CODEC.encode("agent_goal", goal)
        self._append(JOBS, goal_key(goal["goal_id"]), value, "agent_goal", by_owner=by_owner)

    def keep_session(self, session: AgentSession, *, by_owner: bool = True) -> None:
        """Write a session as it stands now."""
        session_id = session["session_id"]
        self.sessions[session_id] = session
        value, key = CODEC.encode("agent_session", session), session_record_key(session_id)
        self._append(SESSIONS, key, value, "agent_session", by_owner=by_owner)

    def forget(self, topic: str, key: str, **told: object) -> None:
        """Forget a record, as the owner does whose headers say why."""
        headers = [(name, str(text).encode()) for name, text in told.items()]
        self.log.append((topic, 0), self.now_ms, key.encode(), None, [(CAUSE, b""), *headers])

    def _leave(self, offset: int, status: AgentJobStatus) -> None:
        """Write the session as its turn leaves it."""
        session_id = self.turns[offset].session_id
        others_wait = any(
            at not in self.over and each.session_id == session_id for at, each in self.turns.items()
        )
        self.keep_session(
            ended(
                self.sessions[session_id],
                record_status=status,
                others_wait=others_wait,
                now_ms=self.now_ms,
            )
        )

    def _say(self, said: Output) -> None:
        value = CODEC.encode(said.kind, cast("dict[str, Any]", said.value))
        self._append(said.topic, said.key or "", value, said.kind)

    def _at(self, offset: int) -> Position:
        return Position(TURNS, 0, offset)

    def _append(
        self, topic: str, key: str, value: bytes | None, kind: str, *, by_owner: bool = False
    ) -> int:
        headers = [("kind", kind.encode()), *([(CAUSE, b"")] if by_owner else [])]
        return self.log.append((topic, 0), self.now_ms, key.encode(), value, headers)
