"""Sessions judged on a log: each stands as the last of its turns left it."""

from __future__ import annotations

from typing import Any

import pytest

from streams.codec import Codec
from streams.core.turn.words import CLAIMS, JOBS
from tests.support.turn_log import SESSIONS, TurnLog

CODEC = Codec()


def change_session(log: TurnLog, status: Any, *, by_owner: bool = True) -> None:
    """Write something else than its owner had written of the session `s`."""
    log.keep_session({**log.sessions["s"], "status": status}, by_owner=by_owner)


def test_a_session_of_a_turn_that_runs_is_running() -> None:
    log = TurnLog()
    log.claim(log.enqueue())
    assert log.told() == []
    change_session(log, "queued")
    assert log.told() == [
        f"{SESSIONS}/0/2: its session is queued, expected running after turn_claimed ({CLAIMS}/0/0)"
    ]


def test_a_session_of_a_turn_that_was_given_back_waits() -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.release(turn)
    assert log.told() == []
    change_session(log, "running")
    assert log.told() == [
        (
            f"{SESSIONS}/0/3: its session is running, expected queued after turn_claim_released "
            f"({CLAIMS}/0/1)"
        )
    ]


@pytest.mark.parametrize(
    ("ended_as", "says"), [("completed", "failed"), ("failed", "running"), ("paused", "idle")]
)
def test_a_session_stands_as_its_last_turn_ended(ended_as: str, says: str) -> None:
    log = TurnLog()
    turn = log.enqueue()
    log.claim(turn)
    log.finish(turn, ended_as)
    assert log.told() == []
    change_session(log, says)
    assert log.told() == [
        (
            f"{SESSIONS}/0/3: its session is {says}, expected {ended_as} after turn_finished "
            f"({CLAIMS}/0/1)"
        )
    ]


def test_a_session_waits_only_while_another_turn_of_it_has_no_end() -> None:
    log = TurnLog()
    first = log.enqueue()
    log.claim(first)
    log.finish(first)
    log.commit(1)
    change_session(log, "queued")
    assert log.told() == [
        (
            f"{SESSIONS}/0/3: its session is queued, expected completed after turn_finished "
            f"({CLAIMS}/0/1)"
        )
    ]
    log.enqueue()
    assert log.told() == []


def test_a_turn_that_is_rejected_leaves_its_session_as_it_is() -> None:
    log = TurnLog()
    first = log.enqueue()
    log.claim(first)
    log.reject(log.enqueue())
    assert log.told() == []
    change_session(log, "completed")
    assert log.told() == [
        (
            f"{SESSIONS}/0/2: its session is completed, expected running after turn_claimed "
            f"({CLAIMS}/0/0)"
        )
    ]


def test_what_the_api_wrote_of_a_session_is_not_judged_nor_what_is_gone() -> None:
    log = TurnLog()
    log.claim(log.enqueue())
    change_session(log, "failed", by_owner=False)
    assert log.told() == []
    log.records(SESSIONS).clear()
    assert log.told() == []


@pytest.mark.parametrize("value", [b"\xc3\x01junk", CODEC.encode("tick", {"due_ms": 1})])
def test_what_is_no_session_is_told(value: bytes) -> None:
    log = TurnLog()
    log.log.append((SESSIONS, 0), 0, b"session:s", value, [("kind", b"agent_session")])
    (told,) = log.told()
    assert told.startswith(f"{SESSIONS}/0/0: it is ")
    assert told.endswith(", expected a agent_session")


def test_what_is_no_goal_is_told() -> None:
    log = TurnLog()
    value = CODEC.encode("tick", {"due_ms": 1})
    log.log.append((JOBS, 0), 0, b"goal:g", value, [("kind", b"agent_goal")])
    assert log.told() == [f"{JOBS}/0/0: it is tick, expected a agent_goal"]
