"""Turns for busy sessions on a real broker: who waits, who is rejected, who interrupts."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from streams.core.turn.words import CLAIMS, JOBS
from streams.edge.turns.body import Claimed, Ending
from streams.settings import Settings
from tests.support.kafka_turns import (
    Api,
    read_topic,
    until,
    worker,
)

pytestmark = [pytest.mark.broker]


def last_words(settings: Settings, session: str) -> dict[str, tuple[str, str, str | None]]:
    """Outcome, status of the record and error of each job of a session."""
    told: dict[str, Any] = {}
    for each in read_topic(settings, JOBS):
        if each.value.get("session_id") == session:
            told[each.value["job_id"]] = each.value
    outcomes = {
        each.value["job_id"]: each.value["outcome"]
        for each in read_topic(settings, CLAIMS)
        if each.kind == "turn_finished" and each.value["session_id"] == session
    }
    return {
        job_id: (outcomes[job_id], value["status"], value["error"])
        for job_id, value in told.items()
    }


async def test_a_busy_session_rejects_at_once_and_is_interrupted(settings: Settings) -> None:
    session = f"busy-{uuid.uuid4().hex[:8]}"
    first, waiting, refused, last = (f"{session}-{name}" for name in ("a", "b", "c", "d"))
    runs = asyncio.Event()

    async def body(claimed: Claimed) -> Ending:
        if claimed.envelope.job_id != first:
            return Ending("completed")
        runs.set()
        await claimed.cancelled.wait()
        return Ending("failed", error="told to end")

    api = Api(settings)
    api.session(session)
    api.enqueue(first, session)
    api.enqueue(waiting, session)
    api.enqueue(refused, session, when_busy="reject")
    api.flush()
    async with worker(settings, body, slots=1) as served:
        await until(runs.is_set, served)
        await until(lambda: served.ran.outcomes == ["rejected"], served)
        assert served.ran.started == [first], "it ended though no slot was free"
        api.enqueue(last, session, when_busy="interrupt")
        api.flush()
        await until(lambda: len(served.ran.outcomes) == 4, served)

    assert served.ran.started == [first, last]
    assert served.ran.outcomes == ["rejected", "interrupted", "interrupted", "completed"]
    assert last_words(settings, session) == {
        first: ("interrupted", "cancelled", f"interrupted by {last}"),
        waiting: ("interrupted", "cancelled", f"interrupted by {last}"),
        refused: ("rejected", "failed", f"rejected: turn {first} of its session had not ended"),
        last: ("completed", "completed", None),
    }


async def test_a_body_that_does_not_listen_is_cancelled_before_the_next_one_starts(
    settings: Settings,
) -> None:
    session = f"busy-{uuid.uuid4().hex[:8]}"
    first, last = f"{session}-a", f"{session}-b"
    runs = asyncio.Event()

    async def body(claimed: Claimed) -> Ending:
        if claimed.envelope.job_id == first:
            runs.set()
            await asyncio.Event().wait()
        return Ending("completed")

    api = Api(settings)
    api.enqueue(first, session)
    api.flush()
    async with worker(settings, body) as served:
        await until(runs.is_set, served)
        api.enqueue(last, session, when_busy="interrupt")
        api.flush()
        await until(lambda: len(served.ran.outcomes) == 2, served)

    assert served.ran.ended == [first, last]
    assert served.ran.outcomes == ["interrupted", "completed"]
