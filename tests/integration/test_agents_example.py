"""The example of agents, by the commands of its page: with a worker on Kafka, and without one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from streams.app import Application, Plan
from streams.roles import Role
from streams.settings import Settings
from tests.support.app_cluster import cli, provision, read, settings_for_app
from tests.support.broker import PrivateBroker
from tests.support.eventually import PATIENCE_S, eventually_async

pytestmark = [pytest.mark.broker]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "agents"


def asked() -> list[tuple[str, dict[str, Any]]]:
    """Path and body of each request that the page shows."""
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    found: list[tuple[str, dict[str, Any]]] = []
    for line in re.findall(r"^curl .*-d .*$", page, re.MULTILINE):
        words = shlex.split(line)
        (url,) = (word for word in words if word.startswith("localhost:8080"))
        body = json.loads(words[words.index("-d") + 1])
        found.append((url.removeprefix("localhost:8080"), body))
    return found


@contextmanager
def worker(settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "streams.cli.turn_worker", "--workers", "4"]
    command += ["--worker-id", "w1", "--config", str(EXAMPLE / "harn.toml")]
    environment = {**os.environ, **settings.environment()}
    with subprocess.Popen(command, env=environment, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


async def try_the_page(url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Send what the page shows; return task and goal once they have ended."""
    (task_path, task), (goal_path, goal) = asked()
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        response = await client.post(task_path, json=task)
        while response.status_code == 503:  # the topics are being read
            response = await client.post(task_path, json=task)
        assert response.status_code == 202, response.text
        status_url = response.json()["status_url"]
        response = await client.post(goal_path, json=goal)
        assert response.status_code == 202, response.text
        goal_url = f"/api/goals/{response.json()['goal_id']}"
        ended: list[dict[str, Any]] = []

        async def both_ended() -> bool:
            ended[:] = [(await client.get(path)).json() for path in (status_url, goal_url)]
            return {each["status"] for each in ended} <= {"completed", "failed"}

        await eventually_async(both_ended, "both have ended")
    return ended[0], ended[1]


def is_right(task: dict[str, Any], goal: dict[str, Any]) -> None:
    assert (task["status"], task["result"]) == ("completed", "SAY IT LOUDLY")
    assert (goal["status"], goal["iteration_count"]) == ("completed", 2)
    assert goal["result"] == '{"counted":2}'
    assert goal["agent_name"] == "counter"
    assert goal["executed_by"]


async def validated_by_a_command(settings: Settings, url: str) -> None:
    """Vector 8-16: validation `true`, one iteration, and what the assistant said."""
    asked = {"objective": "be true", "validation_cmd": "true", "session_id": "sess-8-16"}
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        goal_id = (await client.post("/api/goals", json=asked)).json()["goal_id"]

        async def has_ended() -> bool:
            goal = (await client.get(f"/api/goals/{goal_id}")).json()
            return goal["status"] not in ("pending", "running")

        await eventually_async(has_ended, "the goal's end")
        goal = (await client.get(f"/api/goals/{goal_id}")).json()
    assert (goal["status"], goal["iteration_count"]) == ("completed", 1)
    (iteration,) = goal["iterations"]
    assert (iteration["summary"], iteration["validated"], iteration["exit_code"]) == (
        "BE TRUE",
        True,
        0,
    )
    found = await asyncio.to_thread(read, settings, "agent.sessions", {"agent_session"})
    last = [each.value for each in found if each.value["session_id"] == "sess-8-16"][-1]
    assert [(each["role"], each["content"]) for each in last["said"]] == [("assistant", "BE TRUE")]


async def test_the_page_of_the_example_does_what_it_says(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    queue = settings_for_app(
        kafka,
        tmp_path,
        agent_turns_api="on",
        agent_dispatch_backend="queue",
        agent_validation_commands="on",
    )
    await asyncio.to_thread(provision, queue)
    application = Application(Plan(settings=queue, roles=[Role.INGEST]))
    await application.start()
    try:
        with worker(queue) as process:
            is_right(*await try_the_page(application.http_url))
            await validated_by_a_command(queue, application.http_url)
            shown = await asyncio.to_thread(cli, queue, "fleet", "--json")
            (known,) = json.loads(shown.stdout)["dispatch_workers"]
            assert (known["worker_id"], known["capacity"]) == ("w1", 4)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
    finally:
        await application.stop()

    inline = settings_for_app(kafka, tmp_path, agent_turns_api="on")
    application = Application(
        Plan(settings=inline, roles=[Role.INGEST], manifest=EXAMPLE / "harn.toml")
    )
    await application.start()
    try:
        is_right(*await try_the_page(application.http_url))
        async with httpx.AsyncClient(base_url=application.http_url, timeout=30) as client:
            fleet = (await client.get("/api/fleet/topology")).json()
        assert "inline" in {each["queue_backend"] for each in fleet["dispatch_workers"]}
    finally:
        await application.stop()
    judged = await asyncio.to_thread(cli, inline, "audit", "verify")
    assert judged.returncode == 0, judged.stdout + judged.stderr
