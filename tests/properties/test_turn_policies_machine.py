"""Policies of turns beside a list of turns that is looked through for every answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streams.core.turn.envelope import PRIORITIES, Policy, Priority
from streams.core.turn.envelope_fields import POLICIES
from streams.core.turn.lanes import Turn
from tests.support.turns_taken import TurnsTaken


@dataclass
class Entry:
    """A turn as the slow reference knows it."""

    turn: Turn
    job_id: str
    record: str
    state: str = "waiting"
    until_ms: int = 0
    aside: int = 0
    by: tuple[str, str] | None = None
    interrupts: bool = False


class Reference(RuleBasedStateMachine):
    """Lanes and policies beside a list of turns that is looked through for every answer."""

    ROOM = 3

    def __init__(self) -> None:
        super().__init__()
        self.partition = TurnsTaken(max_beyond_prefix=self.ROOM, max_taken=8)
        self.entries: list[Entry] = []
        self.now_ms = 0
        self.asides = 0

    def line(self, session_id: str) -> list[Entry]:
        return [
            each
            for each in self.entries
            if each.turn.session_id == session_id and each.state != "finished" and not each.aside
        ]

    def in_the_way(self, entry: Entry) -> list[Entry]:
        line = self.line(entry.turn.session_id)
        before = [each for each in line if each.turn.offset < entry.turn.offset]
        if any(each.job_id == entry.job_id for each in before):
            return []
        return [
            each
            for at, each in enumerate(before)
            if each.by is None
            and each.record != entry.record
            and all(other.job_id != each.job_id for other in before[:at])
        ]

    def put_aside(self, entry: Entry) -> None:
        self.asides += 1
        entry.aside = self.asides

    def has_room(self) -> bool:
        unfinished = [each for each in self.entries if each.state != "finished"]
        if not unfinished:
            return True
        first = unfinished[0]
        past = [each for each in self.entries if each.turn.offset > first.turn.offset]
        return sum(each.state != "waiting" for each in past) < self.ROOM

    def may_start(self, found: list[Entry]) -> list[Entry]:
        if self.has_room():
            return found
        first = next(each for each in self.entries if each.state != "finished")
        return [each for each in found if each is first]

    def best(self) -> Turn | None:
        sessions = {each.turn.session_id for each in self.entries}
        heads = [line[0] for each in sessions if (line := self.line(each))]
        ready = [each for each in heads if self.is_ready(each)]
        return min((each.turn for each in self.may_start(ready)), default=None)

    def is_ready(self, entry: Entry) -> bool:
        before = [
            each
            for each in self.entries[: entry.turn.offset]
            if each.turn.session_id == entry.turn.session_id and each.state != "finished"
        ]
        return not before and entry.state == "waiting" and entry.until_ms <= self.now_ms

    def best_aside(self) -> Turn | None:
        found = [each for each in self.entries if each.aside and each.state == "waiting"]
        chosen = min(self.may_start(found), key=lambda each: each.aside, default=None)
        return None if chosen is None else chosen.turn

    def running(self) -> list[Entry]:
        return [each for each in self.entries if each.state == "running"]

    @precondition(lambda self: self.partition.lanes.wants_more)
    @rule(
        session_id=st.sampled_from("ab"),
        job=st.integers(0, 9),
        record=st.integers(0, 9),
        priority=st.sampled_from(PRIORITIES),
        when_busy=st.sampled_from(POLICIES),
    )
    def take(
        self, session_id: str, job: int, record: int, priority: Priority, when_busy: Policy
    ) -> None:
        job_id, payload_ref = f"job-{job}", f"goal-{record}"
        turn = self.partition.take(
            when_busy,
            session_id=session_id,
            job_id=job_id,
            payload_ref=payload_ref,
            priority=priority,
        )
        entry = Entry(turn, job_id, payload_ref)
        self.entries.append(entry)
        if ahead := self.in_the_way(entry):
            entry.interrupts = when_busy == "interrupt"
            if when_busy == "reject":
                entry.by = ("rejected", ahead[0].job_id)
                self.put_aside(entry)

    def interrupters(self) -> list[Entry]:
        return [each for each in self.entries if each.interrupts]

    @precondition(lambda self: self.interrupters())
    @rule(data=st.data(), is_runnable=st.booleans())
    def interrupt(self, data: Any, is_runnable: bool) -> None:
        entry = data.draw(st.sampled_from(self.interrupters()))
        entry.interrupts = False
        if not is_runnable:
            self.partition.policies.relent(entry.turn)
            return
        running: list[Turn] = []
        for each in self.in_the_way(entry):
            each.by, each.interrupts = ("interrupted", entry.job_id), False
            if each.state == "running":
                running.append(each.turn)
            else:
                self.put_aside(each)
        assert self.partition.policies.interrupt(entry.turn) == tuple(running)

    @rule(aside=st.booleans())
    def start(self, aside: bool) -> None:
        lanes = self.partition.lanes
        turn = lanes.best_aside() if aside else lanes.best(self.now_ms)
        if turn is not None:
            lanes.start(turn)
            entry = self.entries[turn.offset]
            entry.state = "running"
            if not aside:
                entry.interrupts = False
                self.partition.policies.relent(turn)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def finish(self, data: Any) -> None:
        entry = data.draw(st.sampled_from(self.running()))
        self.partition.finish(entry.turn)
        entry.state, entry.by, entry.aside = "finished", None, 0

    @precondition(lambda self: self.running())
    @rule(data=st.data(), later_ms=st.integers(0, 3))
    def give_back(self, data: Any, later_ms: int) -> None:
        entry = data.draw(st.sampled_from(self.running()))
        until_ms = self.now_ms + later_ms if later_ms else None
        self.partition.lanes.give_back(entry.turn, not_before_ms=until_ms)
        self.partition.policies.given_back(entry.turn)
        entry.state, entry.until_ms = "waiting", until_ms or 0
        if entry.aside or entry.by is not None:
            self.put_aside(entry)

    @rule()
    def later(self) -> None:
        self.now_ms += 1

    @invariant()
    def answers_are_the_reference_s(self) -> None:
        lanes, policies = self.partition.lanes, self.partition.policies
        assert lanes.best(self.now_ms) == self.best()
        assert lanes.best_aside() == self.best_aside()
        unfinished = [each.turn.offset for each in self.entries if each.state != "finished"]
        assert lanes.committable == (unfinished[0] if unfinished else len(self.entries))
        assert lanes.held == len(unfinished)
        for each in self.entries:
            word = policies.overruled(each.turn.offset)
            assert (None if word is None else tuple(word)) == each.by
        assert [each.offset for each in policies.interrupting] == [
            each.turn.offset for each in self.interrupters()
        ]

    @invariant()
    def a_session_runs_one_turn(self) -> None:
        for session_id in "ab":
            running = [each for each in self.line(session_id) if each.state == "running"]
            assert len(running) <= 1
        finished = [each for each in self.entries if each.state == "finished"]
        first = self.partition.lanes.committable
        assert sum(each.turn.offset > first for each in finished) <= self.ROOM


TestReference = Reference.TestCase
TestReference.settings = settings(max_examples=150, stateful_step_count=40)
