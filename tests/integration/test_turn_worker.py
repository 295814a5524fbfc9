"""The worker of turns on a real broker: order, ends, hand-overs, owners that fence each other."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from typing import Any

import pytest

from streams.core.turn.words import CLAIMS, DEAD_LETTERS, JOBS, SESSIONS, TURNS
from streams.edge.turns.body import Claimed, Ending
from streams.settings import Settings
from tests.support.broker import Kafka
from tests.support.kafka_turns import (
    Api,
    now_ms,
    provision_turns,
    read_topic,
    turn_settings,
    until,
    worker,
)

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def settings(kafka: Kafka) -> Settings:
    provision_turns(kafka.settings)
    return turn_settings(kafka.settings, turn_handover_s=20, drain_ms=5_000)


@pytest.fixture
def run() -> str:
    """Begins the names of one test: tests share topics and group."""
    return uuid.uuid4().hex[:8]


def of_run(settings: Settings, topic: str, run: str) -> list[Any]:
    """The records of one test, by the session that they are about."""
    found = read_topic(settings, topic)
    return [each for each in found if str(each.value.get("session_id", "")).startswith(run)]


def words_about(settings: Settings, run: str) -> dict[str, list[tuple[str, str]]]:
    """Kinds and outcomes that the claims have of each job, in order."""
    said: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for each in of_run(settings, CLAIMS, run):
        said[each.value["job_id"]].append((each.kind, each.value.get("outcome", "")))
    return said


async def test_turns_of_a_session_run_in_their_order_and_once_each(
    settings: Settings, run: str
) -> None:
    api = Api(settings)
    sessions = [f"{run}-s{number}" for number in range(8)]
    jobs = {each: [f"{each}-j{number}" for number in range(12)] for each in sessions}
    for each in sessions:
        api.session(each)
    for number in range(12):
        for each in sessions:
            api.enqueue(jobs[each][number], each)
    api.flush()

    async def body(claimed: Claimed) -> Ending:
        await asyncio.sleep(0)
        return Ending("completed", result=claimed.envelope.job_id)

    async with worker(settings, body, slots=8) as served:
        await until(lambda: len(served.ran.outcomes) >= 96, served)
    for each in sessions:
        assert [job for job in served.ran.started if job.startswith(f"{each}-")] == jobs[each]
    ends = [("turn_claimed", ""), ("turn_finished", "completed")]
    assert words_about(settings, run) == {
        job: ends for of_session in jobs.values() for job in of_session
    }
    last = {each.value["session_id"]: each.value for each in of_run(settings, SESSIONS, run)}
    for each in sessions:
        assert last[each]["status"] == "completed"
        assert [said["content"] for said in last[each]["said"]] == jobs[each]
    records = {each.value["job_id"]: each.value for each in of_run(settings, JOBS, run)}
    assert {each["status"] for each in records.values()} == {"completed"}
    assert {each["dispatch_host"] != "" for each in records.values()} == {True}
    assert {each["executed_by"] for each in records.values()} == {
        each["claimed_by"] for each in records.values()
    }


async def test_8_17_8_20_8_21_what_is_not_to_be_run_ends_or_is_kept_and_the_rest_goes_on(
    settings: Settings, run: str
) -> None:
    api = Api(settings)
    session = f"{run}-s"
    api.append(TURNS, "agent_turn", "session:x", b'{"job_id": "poison"}', session)
    api.enqueue(f"{run}-late", session, deadline_ms=now_ms() - 10_000)
    api.enqueue(f"{run}-once", session)
    api.turn(f"{run}-once", session)
    api.turn(f"{run}-nothing", session)
    json_turn = (
        f'{{"session_id": "{session}", "kind": "orchestrator_task", "payload_ref": "{run}-json"}}'
    )
    api.task(f"{run}-json", session)
    api.append(TURNS, "agent_turn", f"session:{session}", json_turn.encode(), session)
    api.flush()
    async with worker(settings) as served:
        await until(lambda: len(served.ran.outcomes) >= 5, served)
    assert served.ran.started[:1] == [f"{run}-once"]
    assert len(served.ran.started) == 2, "what is JSON ran, nothing twice"
    assert served.ran.outcomes == ["expired", "completed", "skipped", "skipped", "completed"]
    letters = [
        each for each in read_topic(settings, DEAD_LETTERS) if each.value["job_id"] == "poison"
    ]
    assert "session_id is missing" in letters[-1].value["error"]
    assert letters[-1].value["raw"] == b'{"job_id": "poison"}'
    jobs = {each.value["job_id"]: each.value for each in of_run(settings, JOBS, run)}
    assert jobs[f"{run}-late"]["status"] == "failed"
    assert "deadline" in jobs[f"{run}-late"]["error"]
