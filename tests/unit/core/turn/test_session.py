"""Sessions: what stands in their record, and what people want of them."""

from __future__ import annotations

import json

import pytest

from streams.codec import Codec
from streams.core.turn.session import (
    CONTENT_CHARS_MAX,
    METADATA_BYTES_MAX,
    SAID_KEPT_MAX,
    asked,
    began,
    ended,
    new_session,
    said,
)
from streams.core.wire import AgentJobStatus

SESSION = new_session("s", tenant="acme", now_ms=1)


def test_8_12_a_new_session_is_queued_and_holds_what_is_known_of_it() -> None:
    spec = json.dumps({"goal_spec": {"objective": "win"}})
    session = new_session("s", metadata_json=spec, now_ms=1)

    assert (session["status"], session["metadata_json"]) == ("queued", spec)


@pytest.mark.parametrize("metadata", ["", "[]", "null", "{", "[" * 50_000, '{"x": "\ud800"}'])
def test_metadata_is_a_json_object(metadata: str) -> None:
    with pytest.raises(ValueError, match="metadata is no JSON object, expected one"):
        new_session("s", metadata_json=metadata, now_ms=1)


def test_metadata_is_bounded() -> None:
    most = json.dumps({"x": "x" * (METADATA_BYTES_MAX - 9)})

    assert new_session("s", metadata_json=most, now_ms=1)["metadata_json"] == most
    with pytest.raises(ValueError, match="metadata has 65537 bytes, expected at most 65536"):
        new_session("s", metadata_json=most + " ", now_ms=1)


def test_a_session_runs_while_a_turn_does() -> None:
    asks = {**SESSION, "needs_input": True}

    assert began(asks, now_ms=5) == {**SESSION, "status": "running", "updated_at_ms": 5}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record_status", "others_wait", "status"),
    [
        ("completed", False, "completed"),
        ("failed", False, "failed"),
        ("cancelled", False, "cancelled"),
        ("paused", False, "paused"),
        ("pending", False, "idle"),
        (None, False, "idle"),
        ("failed", True, "queued"),
        (None, True, "queued"),
    ],
)
def test_after_a_turn_a_session_waits_or_is_what_its_goal_came_to(
    record_status: AgentJobStatus | None, others_wait: bool, status: str
) -> None:
    found = ended(
        began(SESSION, now_ms=5), record_status=record_status, others_wait=others_wait, now_ms=6
    )

    assert (found["status"], found["updated_at_ms"]) == (status, 6)


def test_8_16_what_is_said_is_numbered_and_the_newest_is_kept() -> None:
    session = SESSION
    for number in range(1, 26):
        session = said(session, "assistant", f"word {number}", now_ms=number)

    assert session["said_count"] == 25
    assert [each["number"] for each in session["said"]] == list(range(6, 26))
    assert session["said"][-1] == {
        "number": 25,
        "role": "assistant",
        "content": "word 25",
        "at_ms": 25,
    }


def test_a_session_at_its_bounds_is_a_record_that_fits() -> None:
    session = new_session(
        "s" * 256, metadata_json=json.dumps({"x": "x" * (METADATA_BYTES_MAX - 9)}), now_ms=1
    )
    for _ in range(SAID_KEPT_MAX + 1):
        session = said(session, "user", "\U0001f600" * (CONTENT_CHARS_MAX + 1), now_ms=2)

    assert len(session["said"][0]["content"]) == CONTENT_CHARS_MAX
    assert len(Codec().encode("agent_session", session)) < 900_000


def test_a_wish_stays_until_it_is_taken_back() -> None:
    paused = asked("s", None, pause=True, requested_by="ada", reason="r" * 2_000, now_ms=1)
    killed = asked("s", paused, kill=True, now_ms=2)
    resumed = asked("s", killed, pause=False, now_ms=3)

    assert (paused["pause_requested"], paused["kill_requested"]) == (True, False)
    assert (killed["pause_requested"], killed["kill_requested"]) == (True, True)
    assert (resumed["pause_requested"], resumed["kill_requested"]) == (False, True)
    assert (paused["requested_by"], len(paused["reason"])) == ("ada", 1_024)
    assert Codec().decode(Codec().encode("agent_session_desired", paused))[1] == paused
