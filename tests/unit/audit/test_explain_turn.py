"""What happened to one turn, told from the log."""

from __future__ import annotations

import json

from rich.console import Console

from streams.audit.explain_turn import FORGOTTEN, TurnStory, explain_turn
from streams.cli.audit_explain import print_turn, turn_as_json
from streams.core.turn.record import goal_key
from streams.core.turn.words import CLAIMS, TURNS
from tests.support.turn_log import CODEC, JOBS, TurnLog


def full_log() -> TurnLog:
    """Two turns of a session, the second waits for the first, and is begun twice."""
    log = TurnLog()
    log.log.create("agent.sessions", 1)
    first = log.enqueue("a")
    log.now_ms += 1_000
    log.claim(first)
    second = log.enqueue("a")
    log.claim(log.enqueue("b"))
    log.now_ms += 2_000
    log.finish(first)
    log.now_ms += 500
    log.claim(second)
    log.take_over("w2")
    log.now_ms += 4_000
    log.claim(second)
    log.now_ms += 1_000
    log.finish(second, "failed")
    return log


def told(log: TurnLog, job_id: str) -> list[TurnStory]:
    return explain_turn(log.log, CODEC, job_id)


def test_a_turn_is_told_with_what_it_waited_for() -> None:
    [story] = told(full_log(), "job-1")
    assert str(story.position) == f"{TURNS}/0/1"
    assert [each.kind for each in story.happenings] == [
        *("agent_goal", "turn_claimed", "agent_goal", "turn_claimed", "agent_goal"),
        *("turn_finished", "agent_goal"),
    ]
    assert story.outcome == "failed"
    assert story.ahead == ("job-0", 4_000)
    assert (story.waited_ms, story.behind_ms, story.ran_ms) == (2_500, 2_000, 5_000)


def test_a_goal_that_was_forgotten_is_told_of() -> None:
    log = full_log()
    log.now_ms += 60_000
    log.forget(JOBS, goal_key("goal-1"), changed_at_ms=9_500, retention_ms=60_000)
    [story] = told(log, "job-1")
    last = story.happenings[-1]
    assert (last.kind, last.at_ms, last.position.topic) == (FORGOTTEN, log.now_ms, JOBS)
    assert story.outcome == "failed"


def test_the_first_turn_of_a_session_waited_for_none() -> None:
    [story] = told(full_log(), "job-0")
    assert story.ahead is None
    assert (story.waited_ms, story.behind_ms, story.ran_ms) == (1_000, 0, 2_000)


def test_a_turn_that_runs_and_one_that_waits_are_told() -> None:
    log = full_log()
    log.enqueue("b")
    [runs], [waits] = told(log, "job-2"), told(log, "job-3")
    assert (runs.outcome, runs.ran_ms) == ("running", None)
    assert (waits.outcome, waits.waited_ms) == ("waiting", None)


def test_a_job_that_is_not_there_has_no_story() -> None:
    assert told(full_log(), "job-") == []


def test_a_job_that_was_enqueued_twice_has_two_stories() -> None:
    log = full_log()
    again = log.records(TURNS)[0]
    log.records(TURNS).append(again._replace(offset=3))
    assert [story.position.offset for story in told(log, "job-0")] == [0, 3]


def test_what_is_no_turn_is_told_with_its_dead_letter() -> None:
    log = full_log()
    poison = log.poison(b'{"job_id": "job-x", "session_id": ""}')
    [waits] = told(log, "job-x")
    assert (waits.outcome, waits.envelope) == ("waiting", None)
    log.bury(poison)
    [story] = told(log, "job-x")
    assert [each.kind for each in story.happenings] == ["turn_dead_lettered"]
    assert story.outcome == "dead-lettered"


def test_a_turn_that_retention_took_is_told_by_its_words() -> None:
    log = full_log()
    log.log.cut((TURNS, 0), 2)
    [story] = told(log, "job-1")
    assert [each.kind for each in story.happenings] == [
        *("turn_claimed", "turn_claimed", "turn_finished")
    ]
    assert (story.waited_ms, story.ran_ms) == (None, 5_000)


def test_a_story_is_shown_as_a_tree_and_as_json() -> None:
    [story] = told(full_log(), "job-1")
    console = Console(width=160, no_color=True)
    with console.capture() as captured:
        print_turn(console, story)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert lines[0] == f"job-1 of session a failed {TURNS}/0/1"
    assert lines[1].endswith("1970-01-01T00:00:02.000Z enqueued priority=normal")
    assert lines[3].endswith(f"+2.500 s turn_claimed attempt=1 claimed_by=w1 fence=1 {CLAIMS}/0/3")
    assert lines[-1].endswith(
        "waited 2.500 s, 2.000 s of it behind job-0 of its session; ran 5.000 s"
    )
    said = json.loads(json.dumps(turn_as_json(story)))
    assert said["outcome"] == "failed"
    assert (said["behind"], said["behind_ms"]) == ("job-0", 2_000)
    assert said["envelope"]["session_id"] == "a"
    assert [each["kind"] for each in said["happenings"]][-1] == "agent_goal"
