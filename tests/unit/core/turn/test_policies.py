"""Policies of turns whose session is busy: who is overruled, by whom, and when each may start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streams.core.turn.envelope import PRIORITIES, AgentTurnEnvelope, Policy, Priority
from streams.core.turn.envelope_fields import POLICIES
from streams.core.turn.lanes import Lanes, Turn
from streams.core.turn.policies import Overruled, Policies, interrupted_by, rejected_for


class Partition:
    """Lanes and policies over turns that a test takes."""

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


def test_a_turn_that_waits_neither_overrules_nor_is_overruled() -> None:
    partition = Partition()
    partition.take()
    second = partition.take()

    assert partition.policies.overruled(second.offset) is None
    assert partition.lanes.best_aside() is None
    assert partition.policies.interrupting == ()


def test_a_rejected_turn_may_end_while_the_one_in_its_way_runs() -> None:
    partition = Partition()
    partition.take(job_id="first")
    running = partition.start()
    rejected = partition.take("reject")
    waiting = partition.take()

    word = partition.policies.overruled(rejected.offset)
    assert word is not None
    assert word == Overruled("rejected", "first")
    assert (word.status, word.error) == ("failed", rejected_for("first"))
    assert word.error == "rejected: turn first of its session had not ended"
    assert partition.start_aside() == rejected
    partition.finish(rejected)
    assert partition.lanes.committable == running.offset
    partition.finish(running)
    assert partition.start() == waiting


def test_a_session_that_is_free_runs_a_turn_that_will_not_wait() -> None:
    partition = Partition()
    partition.take(session_id="other")
    partition.take()
    partition.start()
    partition.finish(partition.start())

    turn = partition.take("reject")

    assert partition.policies.overruled(turn.offset) is None
    assert partition.start() == turn


def test_a_turn_that_is_rejected_is_in_nobody_s_way() -> None:
    partition = Partition()
    first = partition.take()
    partition.start()
    rejected = partition.take("reject")
    partition.finish(first)

    next_one = partition.take("reject")

    assert partition.policies.overruled(next_one.offset) is None
    assert partition.lanes.best(0) is None, "its session goes on when it has ended"
    assert partition.start_aside() == rejected
    partition.finish(rejected)
    assert partition.start() == next_one


def test_an_interrupt_ends_what_runs_and_what_waits_and_runs_after_them() -> None:
    partition = Partition()
    running = partition.take()
    partition.start()
    waiting = partition.take()
    turn = partition.take("interrupt", job_id="urgent")
    assert partition.policies.interrupting == (turn,)
    assert partition.policies.overruled(running.offset) is None, "its record is not known yet"

    assert partition.policies.interrupt(turn) == (running,)

    for each in (running, waiting):
        word = partition.policies.overruled(each.offset)
        assert word is not None
        assert word == Overruled("interrupted", "urgent")
        assert (word.status, word.error) == ("cancelled", interrupted_by("urgent"))
        assert word.error == "interrupted by urgent"
    assert partition.start_aside() == waiting
    partition.finish(waiting)
    assert partition.lanes.best(0) is None, "what it interrupted has not ended"
    partition.finish(running)
    assert partition.start() == turn


def test_the_last_interrupt_takes_the_place_of_the_ones_before_it() -> None:
    partition = Partition()
    partition.take()
    partition.start()
    first, second = partition.take("interrupt"), partition.take("interrupt", job_id="second")
    partition.policies.interrupt(second)

    assert partition.policies.interrupting == ()
    assert partition.policies.overruled(first.offset) == Overruled("interrupted", "second")


def test_a_turn_that_is_not_runnable_interrupts_nobody() -> None:
    partition = Partition()
    running = partition.take()
    partition.start()
    turn = partition.take("interrupt")

    partition.policies.relent(turn)

    assert partition.policies.interrupting == ()
    partition.finish(running)
    assert partition.start() == turn


def test_turns_of_one_record_are_not_in_each_other_s_way() -> None:
    partition = Partition()
    first = partition.take(payload_ref="goal")
    partition.start()
    rejecting = partition.take("reject", payload_ref="goal")
    interrupting = partition.take("interrupt", payload_ref="goal")

    assert partition.lanes.in_line("s") == (first, rejecting, interrupting)
    assert partition.policies.interrupting == ()


def test_a_second_turn_of_a_job_waits_for_the_first_whatever_it_says() -> None:
    partition = Partition()
    running = partition.take()
    partition.start()
    first = partition.take(job_id="job")
    second = partition.take("reject", job_id="job")
    third = partition.take("interrupt", job_id="job")
    assert partition.policies.overruled(second.offset) is None
    assert partition.policies.interrupting == ()

    turn = partition.take("interrupt")
    assert partition.policies.interrupt(turn) == (running,)

    assert partition.policies.overruled(first.offset) is not None
    for each in (second, third):
        assert partition.policies.overruled(each.offset) is None
    assert partition.lanes.in_line("s") == (running, second, third, turn)


def test_a_record_is_ended_by_the_turn_that_runs_it() -> None:
    partition = Partition()
    partition.take(job_id="job", payload_ref="goal")
    running = partition.start()
    again = partition.take(job_id="again", payload_ref="goal")
    waiting = partition.take(payload_ref="other")
    rejected = partition.take("reject", payload_ref="other")
    assert partition.policies.is_record_shared(rejected), "the one that waits may run it"
    partition.policies.interrupt(partition.take("interrupt"))

    assert partition.policies.is_record_shared(again)
    assert not partition.policies.is_record_shared(rejected), "that one ends as well"
    assert not partition.policies.is_record_shared(waiting)
    assert not partition.policies.is_record_shared(running)


def test_what_is_interrupted_and_given_back_only_ends() -> None:
    partition = Partition()
    running = partition.take()
    partition.start()
    turn = partition.take("interrupt")
    partition.policies.interrupt(turn)

    partition.lanes.give_back(running, not_before_ms=1_000)
    partition.policies.given_back(running)

    assert partition.start_aside() == running
    partition.lanes.give_back(running)
    partition.policies.given_back(running)
    assert partition.start_aside() == running, "it is tried again"
    assert partition.lanes.best(1_000) is None
    partition.finish(running)
    assert partition.start() == turn


def test_what_is_set_aside_keeps_to_the_room_past_an_unfinished_turn() -> None:
    partition = Partition(max_beyond_prefix=2)
    partition.take(session_id="long")
    long = partition.start()
    partition.take()
    running = partition.start()
    waiting = [partition.take() for _ in range(1)]
    turn = partition.take("interrupt")
    partition.policies.interrupt(turn)

    partition.finish(partition.start_aside())
    assert not partition.lanes.wants_more
    assert partition.lanes.best_aside() is None
    partition.finish(running)
    assert partition.lanes.beyond_prefix == 2
    assert (partition.lanes.best(0), waiting[0].offset) == (None, 2)
    partition.finish(long)
    assert partition.start() == turn


def test_a_hand_over_ends_nothing_that_was_set_aside() -> None:
    partition = Partition()
    partition.take()
    partition.start()
    partition.take("reject")

    partition.lanes.stop()

    assert partition.lanes.best_aside() is None


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
        self.partition = Partition(max_beyond_prefix=self.ROOM, max_taken=8)
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
