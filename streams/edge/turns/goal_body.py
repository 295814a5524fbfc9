"""A goal, worked on iteration after iteration; what follows from each is `goal_loop`'s to say.

    what people want ─ work (the goal's agent) ─ validation ─ record ─┐
          ▴                                                           │
          └──────────────── two seconds, or until it is cancelled ────┘

An iteration whose agent raised or took too long has not passed, and the next one is done;
`Terminal` ends the goal.  The validation is the goal's command, else the agent's function; a goal
that has neither goes by the number of its iterations.

Source: seed queue-driven-agent-dispatch, "The model"; SEMANTICS 8.5, 8.9.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Callable

from streams.agent_api import Done, Turn
from streams.core.turn.goal_loop import End, Iterate, iterated, next_step
from streams.core.wire import AgentGoal, GoalIteration
from streams.edge.executors.outcome import Outcome
from streams.edge.turns.agent_runner import AgentRunner
from streams.edge.turns.agents import Agent
from streams.edge.turns.body import Claimed, Ending
from streams.edge.turns.validation import Validating, Verdict, not_passed, run_validation

__all__ = ["GoalBody", "text_of"]

_LOOK_EVERY_S = 0.5
"""How soon a wait between iterations ends when a session is killed."""

_NO_COMMANDS = (
    "the goal has a validation_cmd, and commands are not run here; set "
    "AGENT_VALIDATION_COMMANDS=on where whoever enqueues goals may run programs"
)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class GoalBody:
    """Runs the turns of goals by one agent.

    Args:    clock: ms since the epoch, for the record.
    """

    def __init__(
        self,
        runner: AgentRunner,
        agent: Agent,
        validating: Validating,
        *,
        clock: Callable[[], int] = _wall_ms,
    ) -> None:
        self._runner = runner
        self._agent = agent
        self._validating = validating
        self._clock = clock

    async def __call__(self, claimed: Claimed) -> Ending:
        """Work until the goal has ended or is paused; see `streams.edge.turns.body`."""
        goal = claimed.goal
        assert goal is not None, "a goal's turn is claimed with its goal"
        if goal["goal_spec"]["validation_cmd"] is not None and not self._validating.commands:
            return Ending("failed", goal["result"], _NO_COMMANDS)
        waited = False
        while True:
            step = next_step(goal, **(await claimed.desired())._asdict())
            if isinstance(step, End):
                return Ending(step.status, goal["result"], step.error, goal)
            if step.wait_ms and not waited:
                await self._wait(claimed, step.wait_ms / 1_000)
                waited = True
                continue  # what people want may have changed
            waited = False
            iteration, error = await self._iterate(claimed, goal, step)
            after = iterated(goal, iteration)
            if error is not None:
                after["status"], after["error"] = "failed", error
            if after["status"] != "running":
                assert after["status"] in ("completed", "failed"), "an iteration ends it so"
                running: AgentGoal = {**after, "status": "running", "error": goal["error"]}
                return Ending(after["status"], after["result"], after["error"], running)
            goal = after
            if not await claimed.write(goal):
                raise asyncio.CancelledError

    async def _iterate(
        self, claimed: Claimed, goal: AgentGoal, step: Iterate
    ) -> tuple[GoalIteration, str | None]:
        """Do one iteration; with it comes why the goal has failed, when it has for good."""
        turn = _turn(claimed, goal, step)
        started_at_ms = self._clock()
        outcome = await self._runner.call(
            self._agent.work,
            turn,
            cancelled=claimed.cancelled,
            timeout_ms=self._agent.timeout_ms,
        )
        error: str | None = None
        if outcome.outcome != "success":
            summary = outcome.error or outcome.outcome
            verdict = not_passed()
            error = outcome.error if outcome.error_class == "terminal" else None
        else:
            summary = text_of(outcome) or ""
            verdict = await self._validate(claimed, goal, turn, summary)
        return {
            "number": step.number,
            "summary": summary,
            "validated": None if verdict is None else verdict.passed,
            "exit_code": None if verdict is None else verdict.exit_code,
            "output": "" if verdict is None else verdict.output,
            "started_at_ms": started_at_ms,
            "ended_at_ms": max(started_at_ms, self._clock()),
        }, error

    async def _validate(
        self, claimed: Claimed, goal: AgentGoal, turn: Turn, summary: str
    ) -> Verdict | None:
        """Return whether the goal is reached; None when nothing says so."""
        command = goal["goal_spec"]["validation_cmd"]
        if command is not None:
            return await run_validation(command, self._validating, cancelled=claimed.cancelled)
        if self._agent.validate is None:
            return None
        outcome = await self._runner.call(
            self._agent.validate,
            dataclasses.replace(turn, summary=summary),
            cancelled=claimed.cancelled,
            timeout_ms=self._agent.timeout_ms,
        )
        if outcome.outcome != "success":
            return not_passed(outcome.error or outcome.outcome)
        if outcome.result not in ("true", "false"):
            return not_passed("the validation answered neither True nor False")
        return Verdict(passed=outcome.result == "true")

    async def _wait(self, claimed: Claimed, seconds: float) -> None:
        """Wait between iterations, less when the session is killed.  Raises CancelledError."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while (left_s := until_s - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left_s, _LOOK_EVERY_S)):
                    await claimed.cancelled.wait()
            except TimeoutError:
                if (await claimed.desired()).kill_requested:
                    return
            else:
                raise asyncio.CancelledError


def _turn(claimed: Claimed, goal: AgentGoal, step: Iterate) -> Turn:
    spec, envelope = goal["goal_spec"], claimed.envelope
    return Turn(
        kind="goal_loop",
        objective=spec["objective"],
        session_id=goal["session_id"],
        record_id=goal["goal_id"],
        job_id=envelope.job_id,
        idempotency_key=f"{goal['goal_id']}.{step.number}",
        agent_name=envelope.agent_name,
        tenant=goal["tenant"],
        attempt=goal["attempt"],
        end_state=spec["end_state"],
        constraints=tuple(spec["constraints"]),
        iteration=step.number,
        max_iterations=spec["max_iterations"],
        done=tuple(
            Done(each["number"], each["summary"], each["validated"], each["output"])
            for each in goal["iterations"]
        ),
    )


def text_of(outcome: Outcome) -> str | None:
    """Return what an agent answered as text; None when it answered nothing."""
    if outcome.result is None:
        return None
    found = json.loads(outcome.result)
    return found if isinstance(found, str) else outcome.result
