"""Goals in the worker of turns on a real broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from streams.core.turn.words import CLAIMS, JOBS, SESSIONS
from streams.core.wire import AgentGoal, GoalIteration
from streams.edge.turns.agent_bodies import AgentBodies
from streams.edge.turns.agents import Agent, Agents, agent_function
from streams.edge.turns.body import Claimed, Ending
from streams.settings import Settings
from tests.support.kafka_turns import (
    enqueuer,
    now_ms,
    until,
    worker,
)
from tests.support.turn_runs import of_run

pytestmark = [pytest.mark.broker]


async def test_8_16_a_goal_is_claimed_run_and_written_back(settings: Settings, run: str) -> None:
    agents = Agents(
        {"default": Agent("default", agent_function(lambda turn: f"did {turn.iteration}"))}
    )
    allowed = replace(settings, agent_validation_commands="on")
    bodies = AgentBodies(allowed, agents, slots=2)
    async with enqueuer(settings) as asked:
        body = bodies.body_for("goal_loop", "")
        async with worker(settings, body) as served:
            asking = {"objective": "win", "validation_cmd": "true", "session_id": f"{run}-s"}
            created = await asked.create_goal(asking)
            await until(lambda: served.ran.outcomes == ["completed"], served)
    await bodies.close()
    goal = of_run(settings, JOBS, run)[-1].value
    assert goal["goal_id"] == created["goal_id"]
    assert (goal["status"], goal["iteration_count"], goal["result"]) == ("completed", 1, "did 1")
    assert goal["executed_by"] == goal["owner_host"] == "w"
    session = of_run(settings, SESSIONS, run)[-1].value
    assert session["status"] == "completed"
    assert [(each["role"], each["content"]) for each in session["said"]] == [("assistant", "did 1")]


async def test_a_goal_is_paused_resumed_and_killed_while_its_worker_owns_it(
    settings: Settings, run: str
) -> None:
    async def body(claimed: Claimed) -> Ending:
        goal = claimed.goal
        assert goal is not None
        while True:
            wanted = await claimed.desired()
            if wanted.kill_requested:
                return Ending("cancelled", error="killed", goal=goal)
            if wanted.pause_requested:
                return Ending("paused", goal=goal)
            number = goal["iteration_count"] + 1
            done: GoalIteration = {
                "number": number,
                "summary": f"did {number}",
                "validated": None,
                "exit_code": None,
                "output": "",
                "started_at_ms": now_ms(),
                "ended_at_ms": now_ms(),
            }
            after: AgentGoal = {**goal, "iteration_count": number, "iterations": [done]}
            assert await claimed.write(after)
            goal = after
            await asyncio.sleep(0.02)

    async with enqueuer(settings) as asked, worker(settings, body) as served:
        created = await asked.create_goal({"objective": "go on", "session_id": f"{run}-s"})
        await until(lambda: bool(iterations(settings, run)), served)
        assert await asked.pause(f"{run}-s")
        await until(lambda: len(served.ran.outcomes) == 1, served)
        reached = iterations(settings, run)
        resumed = await asked.resume(f"{run}-s")
        while not resumed:  # the API has not read yet what the worker has written
            await until(lambda: True, served)
            resumed = await asked.resume(f"{run}-s")
        assert resumed[0]["session_id"] == f"{run}-s"
        await until(lambda: iterations(settings, run) > reached, served)
        assert await asked.kill(f"{run}-s")
        await until(lambda: len(served.ran.outcomes) == 2, served)
    last = of_run(settings, JOBS, run)[-1].value
    assert last["goal_id"] == created["goal_id"]
    assert (last["status"], last["error"]) == ("cancelled", "killed")
    sessions = [each for each in of_run(settings, SESSIONS, run) if each.kind == "agent_session"]
    assert sessions[-1].value["status"] == "cancelled"
    outcomes = [
        each.value["record_status"]
        for each in of_run(settings, CLAIMS, run)
        if each.kind == "turn_finished"
    ]
    assert outcomes == ["paused", "cancelled"]


def iterations(settings: Settings, run: str) -> int:
    """How far the goal of a test is."""
    found = [each.value.get("iteration_count", 0) for each in of_run(settings, JOBS, run)]
    return max(found, default=0)
