"""Lanes of turns against the slow way, whatever is taken, run, given back and handed over."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from streams.core.turn.lanes import Lanes, Turn
from tests.support.turn_lanes_model import ModelLanes, ModelTurn

SESSIONS = ("a", "b", "c", "d")


class LanesMachine(RuleBasedStateMachine):
    now_ms = 0

    @initialize(start=st.integers(0, 3), beyond=st.integers(1, 4), taken=st.integers(1, 8))
    def begin(self, start: int, beyond: int, taken: int) -> None:
        self.lanes = Lanes(start, max_beyond_prefix=beyond, max_taken=taken)
        self.model = ModelLanes(start, beyond, taken)
        self.started: dict[str, int] = {}
        self.commits = [start]

    @precondition(lambda self: self.lanes.wants_more)
    @rule(
        gap=st.sampled_from([0, 0, 0, 1, 3]),
        session_id=st.sampled_from(SESSIONS),
        bucket=st.integers(0, 3),
        finished=st.sampled_from([False, False, False, True]),
    )
    def take(self, gap: int, session_id: str, bucket: int, finished: bool) -> None:
        offset = self.lanes.next_offset + gap
        self.lanes.take(offset, session_id, bucket, finished=finished)
        turn = ModelTurn(offset, session_id, bucket, "finished" if finished else "taken")
        self.model.turns.append(turn)
        self.model.next_offset = offset + 1

    @rule(gap=st.integers(0, 2))
    def pass_over(self, gap: int) -> None:
        self.model.next_offset += gap
        self.lanes.pass_over(self.model.next_offset)
        self.lanes.pass_over(0)  # what lies behind changes nothing

    @rule()
    def start(self) -> None:
        turn = self.lanes.best(self.now_ms)
        if turn is None:
            return
        self.lanes.start(turn)
        [found] = [each for each in self.model.turns if each.offset == turn.offset]
        found.state, found.not_before_ms = "running", None
        assert turn.offset >= self.started.get(turn.session_id, 0), "in the order of the log"
        self.started[turn.session_id] = turn.offset

    @precondition(lambda self: self.lanes.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(self.model.running()))
        self.lanes.finish(Turn(found.bucket, found.offset, found.session_id))
        found.state = "finished"

    @precondition(lambda self: self.lanes.running)
    @rule(data=st.data(), delay_ms=st.none() | st.integers(0, 3))
    def give_back(self, data: st.DataObject, delay_ms: int | None) -> None:
        found = data.draw(st.sampled_from(self.model.running()))
        not_before_ms = None if delay_ms is None else self.now_ms + delay_ms
        turn = Turn(found.bucket, found.offset, found.session_id)
        self.lanes.give_back(turn, not_before_ms=not_before_ms)
        found.state, found.not_before_ms = "taken", not_before_ms

    @rule(by_ms=st.integers(1, 2))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule(really=st.sampled_from([False] * 9 + [True]))
    def stop(self, really: bool) -> None:
        if really:
            self.lanes.stop()
            self.model.stopped = True

    @invariant()
    def the_best_is_the_model_s(self) -> None:
        startable = self.model.startable(self.now_ms)
        found = self.lanes.best(self.now_ms)
        assert (found and found.offset) == (startable[0].offset if startable else None)
        assert self.lanes.best(self.now_ms) == found, "asking changes nothing"

    @invariant()
    def the_offset_is_the_model_s_and_never_goes_back(self) -> None:
        assert self.lanes.committable == self.model.committable()
        assert self.lanes.committable >= self.commits[-1]
        assert self.lanes.next_offset == self.model.next_offset
        self.commits.append(self.lanes.committable)

    @invariant()
    def few_turns_are_finished_past_an_unfinished_one(self) -> None:
        assert self.lanes.beyond_prefix == self.model.past("finished")
        assert self.lanes.beyond_prefix <= self.model.max_beyond_prefix
        assert self.lanes.held == len(self.model.unfinished()) <= self.model.max_taken
        assert self.lanes.wants_more == self.model.wants_more()

    @invariant()
    def of_a_session_one_turn_runs(self) -> None:
        running = [turn.session_id for turn in self.lanes.running]
        assert len(running) == len(set(running))
        assert {turn.offset for turn in self.lanes.running} == {
            turn.offset for turn in self.model.running()
        }

    @invariant()
    def waiting_alone_leads_on_when_nothing_runs(self) -> None:
        """A partition with unfinished turns never stands still for good."""
        if self.model.unfinished() and not self.lanes.running and not self.lanes.stopped:
            due_ms = self.lanes.due_ms()
            assert self.lanes.best(self.now_ms) is not None or due_ms is not None
            if self.lanes.best(self.now_ms) is None and due_ms is not None:
                assert due_ms > self.now_ms


LanesMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
test_lanes = LanesMachine.TestCase
