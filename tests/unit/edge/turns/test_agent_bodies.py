"""Orchestrator tasks by agents, and what becomes of turns that no agent runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streams.agent_api import Turn
from streams.core.turn.record import RESULT_CHARS_MAX
from streams.edge.executors.strays import STRAYS_MAX
from streams.edge.turns.agent_bodies import AgentBodies
from streams.edge.turns.agents import Agent, Agents, agent_function
from streams.edge.turns.body import Desired, Ending
from streams.errors import InvokerStuck
from streams.settings import Settings
from tests.support.claimed import MemoryClaimed, goal_claimed, job_claimed
from tests.support.virtual_time import virtual_time


def make(slots: int = 4, timeout_ms: int | None = None, **functions: Any) -> AgentBodies:
    agents = {
        name: Agent(name, agent_function(function), timeout_ms=timeout_ms)
        for name, function in functions.items()
    }
    return AgentBodies(Settings(), Agents(agents), slots=slots)


async def run(work: Callable[..., Any], claimed: MemoryClaimed | None = None) -> Ending:
    bodies = make(default=work)
    try:
        return await bodies.body_for("orchestrator_task", "")(claimed or job_claimed())
    finally:
        await bodies.close()


async def test_a_task_is_done_by_the_agent_that_it_names() -> None:
    seen: list[Turn] = []
    bodies = make(reviewer=lambda turn: seen.append(turn) or "fine", default=lambda _turn: "no")

    ending = await bodies.body_for("orchestrator_task", "reviewer")(
        job_claimed("review it", "reviewer")
    )

    assert ending == Ending("completed", result="fine")
    (turn,) = seen
    assert (turn.kind, turn.objective, turn.agent_name) == (
        "orchestrator_task",
        "review it",
        "reviewer",
    )
    assert (turn.idempotency_key, turn.job_id, turn.tenant) == ("t", "j", "acme")
    await bodies.close()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, None),
        ("text", "text"),
        ("x" * 5_000, "x" * RESULT_CHARS_MAX),
        ("\ud800", "?"),
        ({"a": [1]}, '{"a":[1]}'),
        (True, "true"),
        (7, "7"),
    ],
)
async def test_what_an_agent_answers_is_a_text(answer: object, told: str | None) -> None:
    assert await run(lambda _turn: answer) == Ending("completed", result=told)


def _endless() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


@pytest.mark.parametrize(
    ("answer", "type_name"),
    [(object(), "object"), ({"a": object()}, "dict"), (_endless(), "list")],
)
async def test_what_no_json_can_hold_is_a_failure_that_says_what_was_expected(
    answer: object, type_name: str
) -> None:
    ending = await run(lambda _turn: answer)

    assert (ending.status, ending.result) == ("failed", None)
    assert (ending.error or "").startswith(
        f"TypeError: the agent returned {type_name}, expected a text, a JSON value or nothing: "
    )


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
async def test_an_agent_that_raises_has_failed(error: BaseException) -> None:
    def work(_turn: Turn) -> None:
        raise error

    ending = await run(work)

    assert ending.status == "failed"
    assert ending.error is not None
    assert ending.error.startswith(type(error).__name__)


async def test_plain_agents_run_beside_each_other() -> None:
    both = threading.Barrier(2, timeout=60)
    bodies = make(default=lambda _turn: both.wait() and None)
    body = bodies.body_for("orchestrator_task", "")

    endings = await asyncio.gather(body(job_claimed()), body(job_claimed()))

    assert {each.status for each in endings} == {"completed"}
    await bodies.close()


async def test_a_task_of_a_killed_session_is_not_begun() -> None:
    claimed = job_claimed()
    claimed.wanted = Desired(pause_requested=False, kill_requested=True)

    assert await run(lambda _turn: pytest.fail("it ran"), claimed) == Ending(
        "cancelled", error="killed on request"
    )


async def test_a_plain_agent_sees_that_its_turn_is_cancelled() -> None:
    begun, told = threading.Event(), []

    def work(turn: Turn) -> None:
        begun.set()
        told.append(turn.cancelled.wait(60))

    bodies, claimed = make(default=work), job_claimed()
    running = asyncio.ensure_future(bodies.body_for("orchestrator_task", "")(claimed))
    await asyncio.to_thread(begun.wait, 60)
    claimed.cancelled.set()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert told == [True]
    await bodies.close()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nobody", "there is no agent 'nobody'; known are reviewer"),
        (
            "",
            "there is no agent 'default', which runs turns that name no agent; known are reviewer",
        ),
        ("a2a://peer/agent", "agent 'a2a://peer/agent': a2a:// agents are not built in this"),
        ("http://peer", "agent 'http://peer': agents by address are not built in this release"),
    ],
)
async def test_a_turn_that_no_agent_runs_fails_and_says_which_there_are(
    name: str, told: str
) -> None:
    bodies = make(reviewer=lambda _turn: None)
    for kind, claimed in (
        ("orchestrator_task", job_claimed(agent_name=name)),
        ("goal_loop", goal_claimed(agent_name=name)),
    ):
        ending = await bodies.body_for(kind, name)(claimed)

        assert ending.status == "failed"
        assert ending.error is not None
        assert ending.error.startswith(told)
    await bodies.close()


async def test_a_kind_that_is_not_known_fails() -> None:
    bodies = make()

    ending = await bodies.body_for("séance", "")(job_claimed())

    assert ending.status == "failed"
    assert ending.error == "turns of kind 'séance' are not known, only goal_loop, orchestrator_task"
    await bodies.close()


@virtual_time
async def test_agents_that_never_end_are_borne_up_to_a_bound() -> None:
    release = asyncio.Event()

    async def work(_turn: Turn) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    bodies = make(slots=STRAYS_MAX, timeout_ms=10, default=work)
    body = bodies.body_for("orchestrator_task", "")
    for count in range(STRAYS_MAX):
        assert not bodies.failed.done(), count
        assert (await body(job_claimed())).status == "failed"

    assert isinstance(bodies.failed.exception(), InvokerStuck)
    release.set()
    await asyncio.sleep(1)
    await bodies.close()


async def test_what_begins_after_a_reading_is_run_by_what_was_read() -> None:
    release = asyncio.Event()

    async def slow(_turn: Turn) -> str:
        await release.wait()
        return "before"

    bodies = make(default=slow, gone=lambda _turn: "gone")
    begun = asyncio.ensure_future(bodies.body_for("orchestrator_task", "")(job_claimed()))
    await bodies.adopt(Agents({"default": Agent("default", agent_function(lambda _turn: "after"))}))
    after = await bodies.body_for("orchestrator_task", "")(job_claimed())
    gone = await bodies.body_for("orchestrator_task", "gone")(job_claimed())
    release.set()
    assert (await begun).result == "before"
    assert after.result == "after"
    assert gone.status == "failed"
    await bodies.close()
