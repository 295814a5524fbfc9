"""How a goal is worked on: iteration after iteration, until it is reached or may not go on.

    before each iteration    kill requested      -> End "cancelled"
                             pause requested     -> End "paused"
                             no iterations left  -> End "failed"
                             else                -> Iterate
    after each iteration     it passed           -> the goal is completed
                             it was the last     -> the goal has failed
                             else                -> the goal runs on

An iteration passes when its validation did.  A goal without any validation is completed by its
third iteration, or its last one when it has fewer.  A kill wins over a pause.

All that the loop knows stands in the goal's record, and each iteration is written there with what
follows from it: whoever takes the goal over goes on where the record says.  Running the iteration
and its validation, and waiting between iterations, belong to the edge.

Invariants: iterations are numbered from 1 without gaps, at most `max_iterations` of them; nothing
follows an end; of a record's iterations the newest ITERATIONS_KEPT_MAX are kept.

Source: SEMANTICS 8.9 (desired state), 8.5; seed queue-driven-agent-dispatch, "The model".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streams.core.bounds import TEXT_CHARS_MAX
from streams.core.turn.record import RESULT_CHARS_MAX
from streams.core.wire import AgentGoal, GoalIteration, GoalSpec

__all__ = [
    "BETWEEN_ITERATIONS_MS",
    "ITERATIONS_KEPT_MAX",
    "UNVALIDATED_ITERATIONS",
    "End",
    "Iterate",
    "Step",
    "iterated",
    "next_step",
]

BETWEEN_ITERATIONS_MS = 2_000
"""Between two iterations: time for people to ask for a pause."""

UNVALIDATED_ITERATIONS = 3
"""Iterations that complete a goal whose end nobody can tell."""

ITERATIONS_KEPT_MAX = 20
"""Iterations in a goal's record: with all texts at their bounds, half of the largest record."""


@dataclass(frozen=True, slots=True)
class Iterate:
    """Wait `wait_ms`, then do iteration `number` of the goal, and validate what it came to.

    What is desired of the session is to be read again after the wait.
    """

    number: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class End:
    """Do nothing more: the goal is of this status now."""

    status: Literal["paused", "failed", "cancelled"]
    error: str | None = None


Step = Iterate | End


def next_step(goal: AgentGoal, /, *, pause_requested: bool, kill_requested: bool) -> Step:
    """Return what is to be done with a running goal, given what people want of its session."""
    assert goal["status"] == "running", "whoever asks has claimed it"
    if kill_requested:
        return End("cancelled", "killed on request")
    if pause_requested:
        return End("paused")
    if goal["iteration_count"] >= goal["goal_spec"]["max_iterations"]:
        return End("failed", _not_reached(goal["goal_spec"]))
    done = goal["iteration_count"]
    return Iterate(done + 1, BETWEEN_ITERATIONS_MS if done else 0)


def iterated(goal: AgentGoal, iteration: GoalIteration, /) -> AgentGoal:
    """Return the goal after an iteration, ended if that follows from it."""
    assert goal["status"] == "running", "nothing follows an end"
    assert iteration["number"] == goal["iteration_count"] + 1, "iterations leave no gap"
    spec = goal["goal_spec"]
    assert iteration["number"] <= spec["max_iterations"], "no iteration was left"
    kept: GoalIteration = {
        **iteration,
        "summary": iteration["summary"][:RESULT_CHARS_MAX],
        "output": iteration["output"][-TEXT_CHARS_MAX:],  # the end says what is wrong
    }
    after: AgentGoal = {
        **goal,
        "iteration_count": iteration["number"],
        "iterations": [*goal["iterations"], kept][-ITERATIONS_KEPT_MAX:],
        "result": kept["summary"],
        "updated_at_ms": max(goal["updated_at_ms"], iteration["ended_at_ms"]),
    }
    if _passed(spec, iteration):
        return {**after, "status": "completed"}
    if iteration["number"] == spec["max_iterations"]:
        return {**after, "status": "failed", "error": _not_reached(spec)}
    return after


def _passed(spec: GoalSpec, iteration: GoalIteration) -> bool:
    if iteration["validated"] is not None:
        return iteration["validated"]
    enough = min(UNVALIDATED_ITERATIONS, spec["max_iterations"])
    return spec["validation_cmd"] is None and iteration["number"] >= enough


def _not_reached(spec: GoalSpec) -> str:
    return f"not reached in {spec['max_iterations']} iterations"
