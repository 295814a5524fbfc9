"""Agents that need no model: what they see of a turn, and what they answer."""

from __future__ import annotations

from streams.agent_api import Turn


def echo(turn: Turn) -> str:
    """Answer what was asked, in capital letters."""
    return turn.objective.upper()


async def count(turn: Turn) -> dict[str, int]:
    """Go on where the iterations before have stopped."""
    return {"counted": 1 + len(turn.done)}


def is_counted(turn: Turn) -> bool:
    """Say whether the goal is reached: `count to 2` is, after the second iteration."""
    return turn.iteration >= int(turn.objective.split()[-1])
