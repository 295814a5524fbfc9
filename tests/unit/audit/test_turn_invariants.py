"""Turns judged on a log: of each rule a log that keeps it, and one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from streams.audit.turn_invariants import SHOWN_MAX, judge_turns
from streams.core.turn.record import desired_key, goal_key, session_record_key
from streams.core.turn.words import CLAIMS, DEAD_LETTERS, TURNS
from streams.errors import TopologyError
from tests.support.turn_log import CODEC, JOBS, SESSIONS, TurnLog

HOUR_MS = 3_600_000


def eventful() -> TurnLog:
    """A log with everything in it that may be: takeovers, releases, pauses, poison, skips."""
    log = TurnLog()
    first, other, second = log.enqueue("a"), log.enqueue("b"), log.enqueue("a")
    poison = log.poison()
    log.claim(first)
    log.claim(other)
    log.finish(other, "failed")
    log.take_over("w2")  # the first one died with its owner
    log.claim(first)
    log.release(first)
    log.claim(first)
    log.finish(first, "paused")
    log.commit(2)
    again = log.resume("goal-0")
    log.claim(second)
    log.finish(second, "cancelled")
    log.bury(poison)
    log.take_over("w1")
    log.bury(poison)
    log.claim(again)
    log.finish(again)
    same = log.enqueue("a", "goal-0")
    log.skip(same)
    log.commit(same + 1)
    running = log.enqueue("a")
    log.claim(running)
    log.enqueue("a")
    return log


def test_all_that_may_be_holds() -> None:
    verdict = eventful().verdict()
    assert verdict.violations == []
    assert (verdict.turns, verdict.words, verdict.dead_letters) == (7, 13, 2)
    assert verdict.committed == 6
    assert verdict.notes == []


def test_without_turns_there_is_nothing_to_judge() -> None:
    log = TurnLog()
    assert log.verdict().violations == []
    del log.log.topics[TURNS]
    assert judge_turns(log.log, CODEC) == []


def test_a_topic_that_is_missing_is_named() -> None:
    log = TurnLog()
    del log.log.topics[DEAD_LETTERS]
    with pytest.raises(
        TopologyError, match=r"topic agent\.turns\.dlq has 0 partitions, expected 1"
    ):
        log.verdict()


# ---------------------------------------------------------------------- words
def test_a_session_whose_turns_run_at_once_is_told_once() -> None:
    log = TurnLog()
    first, second, third = (log.enqueue("a") for _ in range(3))
    log.claim(first)
    log.claim(second)
    log.finish(second)
    log.claim(third)
    assert log.told() == [
        (
            f"{CLAIMS}/0/1: turn_claimed of job job-1: an earlier turn of session 'a', at offset "
            "0, is not over"
        ),
    ]


def test_a_turn_that_is_claimed_after_its_end_is_told() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.finish(turn)
    kind, value = log.said()[0]
    log.say_again([*log.said(), (kind, {**value, "attempt": 2})])
    assert log.told() == [
        f"{CLAIMS}/0/2: turn_claimed of job job-0: its turn, at offset 0, is over, or is none",
        f"{CLAIMS}/0/2: it claims what had ended as completed ({CLAIMS}/0/1)",
        f"{JOBS}/0/2: its record is completed, expected running after turn_claimed ({CLAIMS}/0/2)",
    ]


def test_a_second_end_is_told() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.finish(turn)
    log.say_again([*log.said(), log.said()[-1]])
    assert log.told() == [
        f"{CLAIMS}/0/2: turn_finished of job job-0: its turn, at offset 0, is over, or is none"
    ]


def test_a_word_with_a_fence_below_one_before_counts_nothing_and_is_told() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    before = log.holder
    log.take_over("w2")
    log.claim(turn)
    after, log.holder = log.holder, before
    log.release(turn)
    log.holder = after
    log.finish(turn)
    assert log.told() == [
        f"{CLAIMS}/0/2: turn_claim_released of job job-0: its fence is 1, expected at least 2"
    ]


def test_a_fence_that_two_workers_have_is_told() -> None:
    log = TurnLog()
    log.claim(log.enqueue("a"))
    log.take_over("w2")
    other = log.enqueue("b")
    log.claim(other)
    kind, value = log.said()[-1]
    log.say_again([log.said()[0], (kind, {**value, "fence": 1})])
    [first, *_] = log.told()
    assert first == (
        f"{CLAIMS}/0/1: turn_claimed of job job-1: fence 1 is that of worker 'w1', not of 'w2'"
    )


def test_a_claim_of_what_is_held_is_told() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.claim(turn)
    assert log.told() == [
        f"{CLAIMS}/0/1: turn_claimed of job job-0: its turn, at offset 0, is held already"
    ]


def test_an_attempt_that_is_not_counted_is_told() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.take_over("w2")
    log.attempts.clear()
    log.claim(turn)
    assert log.told() == [f"{CLAIMS}/0/1: turn_claimed of job job-0: it is attempt 1, expected 2"]


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ({"attempt": 2}, "it ended attempt 2, expected 1"),
        ({"session_id": "b"}, "its session_id is 'b', that of the turn at offset 0 's'"),
        ({"job_id": "x"}, "its job_id is 'x', that of the turn at offset 0 'job-0'"),
        ({"payload_ref": "x"}, "its payload_ref is 'x', that of the turn at offset 0 'goal-0'"),
        ({"turn_offset": 1 << 40}, f"its turn, at offset {1 << 40}, is over, or is none"),
        ({"turn_offset": -1}, "its turn, at offset -1, is over, or is none"),
    ],
)
def test_an_end_that_says_something_else_is_told(says: dict[str, object], told: str) -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.finish(turn)
    claimed, (kind, value) = log.said()
    log.say_again([claimed, (kind, {**value, **says})])
    job_id = says.get("job_id", "job-0")
    assert log.told()[0] == f"{CLAIMS}/0/1: turn_finished of job {job_id}: {told}"


@pytest.mark.parametrize("word", ["release", "finish"])
def test_what_is_not_held_is_neither_released_nor_done(word: str) -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.take_over("w2")
    getattr(log, word)(turn)
    assert "its turn, at offset 0, is not held under fence 2" in log.told()[0]


def test_a_turn_that_did_not_run_may_end_before_those_ahead_of_it() -> None:
    log = TurnLog()
    first, second = log.enqueue(), log.enqueue()
    log.claim(first)
    log.skip(second)
    assert log.told() == []


def test_words_that_cannot_be_read_are_told_and_those_of_a_later_release_are_not() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    [record] = log.records(CLAIMS)
    log.records(CLAIMS).append(record._replace(offset=1, value=b"{}"))
    for offset, kind in enumerate((b"turn_praised", b"\xff", None), 2):
        log.records(CLAIMS).append(record._replace(offset=offset, headers=[("kind", kind)]))
    [told] = log.told()
    assert told.startswith(f"{CLAIMS}/0/1: it is ")
    assert told.endswith(", expected a turn_claimed")


# ---------------------------------------------------------------------- the group's offset
def test_a_turn_below_the_offset_without_an_end_is_told() -> None:
    log = TurnLog()
    done, lost = log.enqueue(), log.enqueue()
    log.claim(done)
    log.finish(done)
    log.commit(lost + 1)
    assert log.told() == [f"{TURNS}/0/1: it is below the group's offset, 2, and has no end"]


def test_an_offset_past_all_turns_is_told() -> None:
    log = TurnLog()
    log.commit(3)
    assert log.told() == [f"{TURNS}/0/0: the group's offset is 3, expected at most 0"]


def test_a_group_without_an_offset_is_noted() -> None:
    log = TurnLog()
    log.enqueue()
    assert log.verdict().notes == ["group agent-dispatch has no offset here"]


# ---------------------------------------------------------------------- dead letters
def test_what_is_no_turn_and_no_dead_letter_is_told_with_the_rest_in_order() -> None:
    log = TurnLog()
    poison, lost = log.poison(None), log.enqueue()
    log.commit(lost + 1)
    assert log.told() == [
        f"{TURNS}/0/{poison}: it is no turn, below the group's offset, 2, and no dead letter",
        f"{TURNS}/0/{lost}: it is below the group's offset, 2, and has no end",
    ]


def test_a_dead_letter_beyond_the_offset_is_one() -> None:
    log = TurnLog()
    log.enqueue()
    log.bury(log.poison())
    log.commit(0)
    assert log.told() == []


def test_a_dead_letter_of_a_turn_is_told() -> None:
    log = TurnLog()
    log.poison()
    log.bury(0)
    log.log.topics[TURNS][0].clear()
    log.skip(log.enqueue())
    log.commit(1)
    assert log.told() == [
        f"{DEAD_LETTERS}/0/0: the record at offset 0 of {TURNS} is a turn, or none is there"
    ]


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ({"partition": 1}, "it is of partition 1, expected 0"),
        (
            {"raw_sha256": "0" * 64},
            f"its raw_sha256 is not that of the record at offset 0 of {TURNS}",
        ),
    ],
)
def test_a_dead_letter_of_something_else_is_told(says: dict[str, object], told: str) -> None:
    log = TurnLog()
    log.bury(log.poison())
    [record] = log.records(DEAD_LETTERS)
    kind, value = CODEC.decode(record.value or b"")
    changed = CODEC.encode(kind, {**value, **says})
    log.log.topics[DEAD_LETTERS][0] = [record._replace(value=changed)]
    log.commit(1)
    assert log.told() == [
        f"{DEAD_LETTERS}/0/0: {told}",
        f"{TURNS}/0/0: it is no turn, below the group's offset, 1, and no dead letter",
    ]


# ---------------------------------------------------------------------- what is gone
def test_turns_whose_words_may_be_gone_are_not_judged() -> None:
    log = eventful()
    log.log.cut((CLAIMS, 0), 5)
    verdict = log.verdict()
    assert verdict.violations == []
    assert verdict.notes == [
        (
            f"what was said before offset 5 of {CLAIMS} was removed: turns before offset 8 are not "
            "judged"
        ),
    ]


def test_turns_that_came_after_what_is_gone_are_judged() -> None:
    log = eventful()
    log.log.cut((CLAIMS, 0), 5)
    log.now_ms += HOUR_MS
    lost = log.enqueue("c")
    log.commit(lost + 1)
    verdict = log.verdict()
    assert [each.position.offset for each in verdict.violations] == [lost]


def test_words_about_turns_that_are_gone_are_not_judged_but_for_their_fences() -> None:
    log = eventful()
    log.log.cut((TURNS, 0), 4)
    assert log.verdict().violations == []
    kind, value = log.said()[4]
    log.say_again([*log.said()[:4], (kind, {**value, "fence": 1}), *log.said()[5:]])
    assert [each.position.offset for each in log.verdict().violations] == [4]


def test_of_many_violations_the_first_are_told_and_all_are_counted() -> None:
    log = TurnLog()
    for _ in range(SHOWN_MAX + 1):
        log.poison()
    log.commit(SHOWN_MAX + 1)
    verdict = log.verdict()
    assert verdict.violations_count == SHOWN_MAX + 1
    assert len(verdict.violations) == SHOWN_MAX


# ---------------------------------------------------------------------- what is forgotten
def ran(log: TurnLog, offset: int) -> None:
    log.claim(offset)
    log.finish(offset)


def test_what_was_kept_long_enough_is_forgotten_and_nothing_is_told() -> None:
    log = TurnLog()
    ran(log, log.enqueue())
    ended_ms = log.now_ms
    log.now_ms += 5_000
    kept = {"changed_at_ms": ended_ms, "retention_ms": 5_000}
    log.forget(JOBS, goal_key("goal-0"), **kept)
    log.forget(SESSIONS, session_record_key("s"), **kept)
    log.forget(SESSIONS, desired_key("s"), **kept)
    log.skip_unknown(log.enqueue(goal_id="goal-0"))

    assert log.told() == []


@pytest.mark.parametrize("topic", [JOBS, SESSIONS])
@pytest.mark.parametrize(
    ("says", "what"),
    [
        (
            {"changed_at_ms": 1_000, "retention_ms": 5_001},
            "it forgets a record 1 ms before it was kept for 5001 ms",
        ),
        (
            {"retention_ms": 5_000},
            "it forgets a record without saying changed_at_ms and retention_ms as numbers",
        ),
        (
            {"changed_at_ms": "soon", "retention_ms": 5_000},
            "it forgets a record without saying changed_at_ms and retention_ms as numbers",
        ),
    ],
)
def test_what_is_forgotten_too_early_is_told(topic: str, says: dict[str, Any], what: str) -> None:
    log = TurnLog()
    ran(log, log.enqueue())
    log.now_ms = 6_000
    log.forget(topic, goal_key("goal-0") if topic == JOBS else session_record_key("s"), **says)

    (found,) = log.told()
    assert found.endswith(what)


def test_what_is_forgotten_while_it_runs_is_told() -> None:
    log = TurnLog()
    log.claim(log.enqueue())
    log.now_ms += 10_000
    log.forget(JOBS, goal_key("goal-0"), changed_at_ms=1_000, retention_ms=1)

    (found,) = log.told()
    assert "its record is forgotten, expected running" in found
