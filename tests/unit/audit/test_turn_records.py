"""Goals and tasks judged on a log: they stand as their turns ended, and an end is never left."""

from __future__ import annotations

from typing import Any

import pytest

from streams.core.turn.record import NOT_ENQUEUED, goal_key
from streams.core.turn.words import CLAIMS
from tests.support.turn_log import CODEC, JOBS, TurnLog


@pytest.mark.parametrize(
    ("status", "says", "expected"),
    [
        ("completed", "failed", "completed or forgotten"),
        ("failed", "running", "failed or forgotten"),
        ("paused", "running", "cancelled or failed or forgotten or paused or pending"),
    ],
)
def test_a_record_that_does_not_stand_as_its_turn_ended_is_told(
    status: str, says: str, expected: str
) -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.finish(turn, status)
    assert log.told() == []
    _change_last(log, status=says)
    assert log.told() == [
        f"{JOBS}/0/2: its record is {says}, expected {expected} after {status} ({CLAIMS}/0/1)"
    ]


def test_a_record_of_another_owner_is_told() -> None:
    log = TurnLog()
    log.claim(log.enqueue())
    _change_last(log, fence=7)
    assert log.told() == [
        f"{JOBS}/0/1: its record has fence 7, expected 1 after turn_claimed ({CLAIMS}/0/0)"
    ]


def test_a_released_goal_waits() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.release(turn)
    assert log.told() == []
    log.records(JOBS).pop()
    assert log.told() == [
        (
            f"{JOBS}/0/1: its record is running, expected pending after turn_claim_released "
            f"({CLAIMS}/0/1)"
        ),
    ]


def test_what_runs_unclaimed_is_told_where_all_words_are_there() -> None:
    log = TurnLog()
    log.claim(log.enqueue())
    log.records(CLAIMS).clear()
    assert log.told() == [f"{JOBS}/0/1: its record is running under fence 1, unclaimed"]
    log.log.cut((CLAIMS, 0), 1)
    assert log.told() == []


def test_what_ended_may_be_forgotten_and_what_runs_may_not() -> None:
    log = TurnLog()
    first, second = log.enqueue("a"), log.enqueue("b")
    log.claim(first)
    log.finish(first)
    log.claim(second)
    for goal in ("goal-0", "goal-1"):
        log.log.append((JOBS, 0), 0, goal_key(goal).encode(), None, [])
    assert log.told() == [
        f"{JOBS}/0/6: its record is forgotten, expected running after turn_claimed ({CLAIMS}/0/2)"
    ]


def test_a_goal_that_was_resumed_twice_may_be_pending_while_it_runs() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.finish(turn, "paused")
    again = log.resume("goal-0")
    log.claim(again)
    _change_last(log, status="pending")
    assert log.told() == []


@pytest.mark.parametrize("ends", [False, True])
def test_what_the_api_gave_up_on_and_was_begun_all_the_same_is_lawful_and_noted(
    ends: bool,
) -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    if ends:
        log.finish(turn)
    failed: Any = {**log.goals["goal-0"], "status": "failed", "error": f"{NOT_ENQUEUED}no ack"}
    log.keep(failed, by_owner=False)
    verdict = log.verdict()
    assert verdict.violations == []
    assert any("1 goals or tasks stand as the API left them" in note for note in verdict.notes)
    log.keep(failed)  # a worker never says so
    assert len(log.told()) == 1


def test_a_goal_whose_resumption_got_no_ack_is_paused_though_its_turn_ran() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.finish(turn, "paused")
    again = log.resume("goal-0")
    log.claim(again)
    log.keep({**log.goals["goal-0"], "status": "paused"}, by_owner=False)
    assert log.told() == []


def test_an_end_that_is_left_is_told() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.finish(turn)
    log.skip(log.enqueue("s", "goal-0"))
    *before, (kind, value) = log.said()
    log.say_again([*before, (kind, {**value, "record_status": "failed"})])
    assert log.told() == [
        (
            f"{CLAIMS}/0/2: it says that its record is failed, which had ended as completed "
            f"({CLAIMS}/0/1)"
        ),
        (
            f"{JOBS}/0/2: its record is completed, expected failed or forgotten after failed "
            f"({CLAIMS}/0/2)"
        ),
    ]


def _change_last(log: TurnLog, **changes: object) -> None:
    """Write something else into the last record of a goal."""
    record = log.records(JOBS).pop()
    kind, value = CODEC.decode(record.value or b"")
    log.records(JOBS).append(record._replace(value=CODEC.encode(kind, {**value, **changes})))
