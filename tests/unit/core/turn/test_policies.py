"""Policies of turns whose session is busy: who is overruled, by whom, and when each may start."""

from __future__ import annotations

from streams.core.turn.policies import Overruled, interrupted_by, rejected_for
from tests.support.turns_taken import TurnsTaken


def test_a_turn_that_waits_neither_overrules_nor_is_overruled() -> None:
    partition = TurnsTaken()
    partition.take()
    second = partition.take()

    assert partition.policies.overruled(second.offset) is None
    assert partition.lanes.best_aside() is None
    assert partition.policies.interrupting == ()


def test_a_rejected_turn_may_end_while_the_one_in_its_way_runs() -> None:
    partition = TurnsTaken()
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
    partition = TurnsTaken()
    partition.take(session_id="other")
    partition.take()
    partition.start()
    partition.finish(partition.start())

    turn = partition.take("reject")

    assert partition.policies.overruled(turn.offset) is None
    assert partition.start() == turn


def test_a_turn_that_is_rejected_is_in_nobody_s_way() -> None:
    partition = TurnsTaken()
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
    partition = TurnsTaken()
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
    partition = TurnsTaken()
    partition.take()
    partition.start()
    first, second = partition.take("interrupt"), partition.take("interrupt", job_id="second")
    partition.policies.interrupt(second)

    assert partition.policies.interrupting == ()
    assert partition.policies.overruled(first.offset) == Overruled("interrupted", "second")


def test_a_turn_that_is_not_runnable_interrupts_nobody() -> None:
    partition = TurnsTaken()
    running = partition.take()
    partition.start()
    turn = partition.take("interrupt")

    partition.policies.relent(turn)

    assert partition.policies.interrupting == ()
    partition.finish(running)
    assert partition.start() == turn


def test_turns_of_one_record_are_not_in_each_other_s_way() -> None:
    partition = TurnsTaken()
    first = partition.take(payload_ref="goal")
    partition.start()
    rejecting = partition.take("reject", payload_ref="goal")
    interrupting = partition.take("interrupt", payload_ref="goal")

    assert partition.lanes.in_line("s") == (first, rejecting, interrupting)
    assert partition.policies.interrupting == ()


def test_a_second_turn_of_a_job_waits_for_the_first_whatever_it_says() -> None:
    partition = TurnsTaken()
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
    partition = TurnsTaken()
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
    partition = TurnsTaken()
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
    partition = TurnsTaken(max_beyond_prefix=2)
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
    partition = TurnsTaken()
    partition.take()
    partition.start()
    partition.take("reject")

    partition.lanes.stop()

    assert partition.lanes.best_aside() is None
