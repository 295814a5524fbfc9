"""The turn API of role ingest on a real broker, and while that is away."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from streams.app import Application, Plan
from streams.roles import Role
from tests.support.app_cluster import cli, provision, read, settings_for_app
from tests.support.broker import PrivateBroker

pytestmark = [pytest.mark.broker]

GOAL = {"objective": "all tests pass", "validation_cmd": "make test", "session_id": "sess-1"}


async def test_8_12_8_13_goals_are_enqueued_and_refused_loudly_while_the_broker_is_away(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    changes = {"agent_turns_api": "on", "agent_dispatch_backend": "queue"}
    settings = settings_for_app(kafka, tmp_path, **changes)
    await asyncio.to_thread(provision, settings)
    application = Application(Plan(settings=settings, roles=[Role.INGEST]))
    await application.start()
    try:
        async with httpx.AsyncClient(base_url=application.http_url, timeout=60) as client:
            response = await client.post("/api/goals", json=GOAL)
            while response.status_code == 503:  # the topics are being read
                response = await client.post("/api/goals", json=GOAL)
            assert response.status_code == 202
            created = response.json()
            (turn,) = await asyncio.to_thread(read, settings, "agent_turns", {"agent_turn"})
            assert turn.value["payload_ref"] == created["goal_id"]
            (goal,) = await asyncio.to_thread(read, settings, "agent.jobs", {"agent_goal"})
            assert (goal.partition, goal.value["status"]) == (turn.partition, "pending")
            told = (await client.get("/api/fleet/topology")).json()
            assert [each["goal_id"] for each in told["goals"]] == [created["goal_id"]]
            shown = await asyncio.to_thread(cli, settings, "fleet", "--json")
            assert shown.returncode == 0, shown.stderr
            assert json.loads(shown.stdout) == {
                "queue_backend": "kafka",
                "queue_depth": 1,
                "dispatch_workers": [],
            }
            await asyncio.to_thread(private_broker.kill)
            refused = await client.post("/api/goals", json=GOAL)
            assert refused.status_code == 503
            assert "Kafka" in refused.json()["error"]
            await asyncio.to_thread(private_broker.start)
            # What was on its way arrives when the broker is back, and its failure after it.
            found: list[tuple[str, str]] = []
            while len(found) < 3:
                goals = await asyncio.to_thread(read, settings, "agent.jobs", {"agent_goal"})
                found = [(each.value["goal_id"], each.value["status"]) for each in goals]
            (_, (second, pending), (third, failed)) = found
            assert second == third
            assert (pending, failed) == ("pending", "failed")
            assert len(await asyncio.to_thread(read, settings, "agent_turns", {"agent_turn"})) == 1
    finally:
        await application.stop()
