"""A goal is worked on until it ends: what its agent sees, what is written, what ends it early."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streams.agent_api import Done, Terminal, Turn
from streams.edge.turns.agent_bodies import AgentBodies
from streams.edge.turns.agents import Agent, Agents, agent_function
from streams.edge.turns.body import Desired, Ending
from streams.settings import Settings
from tests.support.claimed import MemoryClaimed, goal_claimed
from tests.support.virtual_time import virtual_time

PAUSED = Desired(pause_requested=True, kill_requested=False)
KILLED = Desired(pause_requested=False, kill_requested=True)


@asynccontextmanager
async def bodies(
    work: Callable[..., Any],
    validate: Callable[..., Any] | None = None,
    *,
    timeout_ms: int | None = None,
    **settings: Any,
) -> AsyncIterator[AgentBodies]:
    agent = Agent(
        "default",
        agent_function(work),
        None if validate is None else agent_function(validate),
        timeout_ms,
    )
    allowed: dict[str, Any] = {"agent_validation_commands": "on"} | settings
    found = AgentBodies(Settings(**allowed), Agents({"default": agent}), slots=4)
    try:
        yield found
    finally:
        await found.close()


async def run(
    claimed: MemoryClaimed,
    work: Callable[..., Any],
    validate: Callable[..., Any] | None = None,
    *,
    timeout_ms: int | None = None,
    **settings: Any,
) -> Ending:
    async with bodies(work, validate, timeout_ms=timeout_ms, **settings) as found:
        return await found.body_for("goal_loop", "")(claimed)


async def numbered(turn: Turn) -> str:
    return f"did {turn.iteration}"


@pytest.mark.parametrize("command", ["true", None])
async def test_8_16_one_iteration_completes_a_goal_that_is_reached(command: str | None) -> None:
    claimed = goal_claimed(validation_cmd=command, max_iterations=1)

    ending = await run(claimed, lambda turn: f"did {turn.objective}")

    assert ending[:3] == ("completed", "did win", None)
    assert ending.goal is not None
    assert (ending.goal["status"], ending.goal["iteration_count"]) == ("running", 1)
    (done,) = ending.goal["iterations"]
    assert (done["summary"], done["validated"]) == ("did win", command and True)
    assert claimed.written == []  # the end is the carrier's to write


@virtual_time
async def test_iterations_are_written_two_seconds_apart_and_seen_by_the_next() -> None:
    loop, seen, at_s = asyncio.get_running_loop(), [], []

    async def work(turn: Turn) -> str:
        seen.append(turn)
        at_s.append(loop.time())
        return f"did {turn.iteration}"

    claimed = goal_claimed(end_state="won", constraints=["fair"], agent_name="")
    ending = await run(claimed, work)

    assert ending.status == "completed"
    assert [each["iteration_count"] for each in claimed.written] == [1, 2]
    assert [b - a for a, b in itertools.pairwise(at_s)] == pytest.approx([2, 2])
    last = seen[-1]
    assert (last.iteration, last.max_iterations) == (3, 20)
    assert (last.end_state, last.constraints, last.attempt) == ("won", ("fair",), 1)
    assert [each.idempotency_key for each in seen] == ["g.1", "g.2", "g.3"]
    assert last.done == (
        Done(1, "did 1", validated=None, output=""),
        Done(2, "did 2", validated=None, output=""),
    )


@virtual_time
async def test_a_function_validates_a_goal_without_a_command() -> None:
    async def is_won(turn: Turn) -> bool:
        return turn.summary == "did 5"

    ending = await run(goal_claimed(), numbered, is_won)

    assert ending.goal is not None
    assert (ending.status, ending.goal["iteration_count"]) == ("completed", 5)


@pytest.mark.parametrize("answer", ["yes", 1, None, ValueError("odd")])
@virtual_time
async def test_a_validation_that_does_not_answer_has_not_passed(answer: object) -> None:
    async def validate(_turn: Turn) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    ending = await run(goal_claimed(max_iterations=2), numbered, validate)

    assert ending[:3] == ("failed", "did 2", "not reached in 2 iterations")
    assert ending.goal is not None
    assert {each["validated"] for each in ending.goal["iterations"]} == {False}
    assert all(each["output"] for each in ending.goal["iterations"])


@virtual_time
async def test_an_iteration_that_raised_is_followed_by_another() -> None:
    async def work(turn: Turn) -> str:
        if turn.iteration < 3:
            raise ValueError(f"no {turn.iteration}")
        return "won"

    ending = await run(goal_claimed(), work)

    assert ending[:2] == ("completed", "won")
    assert ending.goal is not None
    assert [each["summary"] for each in ending.goal["iterations"]] == [
        "ValueError: no 1",
        "ValueError: no 2",
        "won",
    ]


async def test_terminal_ends_a_goal() -> None:
    def work(_turn: Turn) -> str:
        raise Terminal("no such account")

    ending = await run(goal_claimed(), work)

    assert (ending.status, ending.error) == ("failed", "Terminal: no such account")
    assert ending.goal is not None
    assert ending.goal["iteration_count"] == 1


@virtual_time
async def test_an_iteration_that_takes_too_long_has_not_passed() -> None:
    async def work(turn: Turn) -> str:
        await turn.cancelled
        return "late"

    ending = await run(goal_claimed(max_iterations=1), work, timeout_ms=1_000)

    assert (ending.status, ending.result) == (
        "failed",
        "ran for longer than its timeout of 1000 ms",
    )


@pytest.mark.parametrize(
    ("wanted", "ended"),
    [(PAUSED, ("paused", None)), (KILLED, ("cancelled", "killed on request"))],
)
async def test_what_people_want_is_heeded_before_the_first_iteration(
    wanted: Desired, ended: tuple[str, str | None]
) -> None:
    claimed = goal_claimed()
    claimed.wanted = wanted

    ending = await run(claimed, numbered)

    assert (ending.status, ending.error) == ended
    assert ending.goal is not None
    assert ending.goal["iteration_count"] == 0


@virtual_time
async def test_a_pause_is_heeded_after_the_wait_and_what_was_done_stays() -> None:
    claimed = goal_claimed()
    loop = asyncio.get_running_loop()
    claimed.on_write = lambda _goal: (
        loop.call_later(1.9, setattr, claimed, "wanted", PAUSED) and None
    )

    ending = await run(claimed, numbered)

    assert (ending.status, ending.result) == ("paused", "did 1")
    assert ending.goal == claimed.written[-1]


@virtual_time
async def test_a_kill_ends_the_wait() -> None:
    claimed = goal_claimed()
    loop = asyncio.get_running_loop()
    claimed.on_write = lambda _goal: (
        loop.call_later(0.6, setattr, claimed, "wanted", KILLED) and None
    )
    began_s = loop.time()

    ending = await run(claimed, numbered)

    assert ending.status == "cancelled"
    assert loop.time() - began_s < 1.5


@virtual_time
async def test_a_lost_claim_ends_it_without_another_iteration() -> None:
    claimed, iterations = goal_claimed(), []

    async def work(turn: Turn) -> None:
        iterations.append(turn.iteration)

    claimed.is_held = False

    with pytest.raises(asyncio.CancelledError):
        await run(claimed, work)
    assert iterations == [1]


@virtual_time
async def test_a_cancelled_turn_ends_its_wait_at_once() -> None:
    claimed = goal_claimed()
    loop = asyncio.get_running_loop()
    claimed.on_write = lambda _goal: loop.call_later(0.1, claimed.cancelled.set) and None
    began_s = loop.time()

    with pytest.raises(asyncio.CancelledError):
        await run(claimed, numbered)
    assert loop.time() - began_s < 0.2


@pytest.mark.parametrize("how", ["event", "task"])
@virtual_time
async def test_a_cancelled_turn_ends_its_agent(how: str) -> None:
    claimed, told = goal_claimed(), []

    async def work(turn: Turn) -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            told.append(bool(turn.cancelled))

    async with bodies(work) as found:
        running = asyncio.ensure_future(found.body_for("goal_loop", "")(claimed))
        asyncio.get_running_loop().call_later(
            5, claimed.cancelled.set if how == "event" else running.cancel
        )
        with pytest.raises(asyncio.CancelledError):
            await running
    assert told == [True]


async def test_commands_are_not_run_unless_that_is_said() -> None:
    unless_told = Settings().agent_validation_commands
    ending = await run(
        goal_claimed(validation_cmd="true"), numbered, agent_validation_commands=unless_told
    )

    assert ending.status == "failed"
    assert ending.error is not None
    assert "AGENT_VALIDATION_COMMANDS" in ending.error


@virtual_time
async def test_a_goal_goes_on_where_its_record_says() -> None:
    claimed = goal_claimed(max_iterations=9)
    assert claimed.goal is not None
    claimed.goal["iteration_count"] = 4

    async def work(turn: Turn) -> str:
        return turn.idempotency_key

    ending = await run(claimed, work)

    assert (ending.status, ending.result) == ("completed", "g.5")
