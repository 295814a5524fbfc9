"""A record of `agent.jobs` as every carrier of turns tells it.

Source: SEMANTICS 8.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.edge.turns.turn_store import Status, TurnRecord

__all__ = ["turn_record"]

_GOAL = "goal_loop"


def turn_record(kind: str, found: Mapping[str, Any], /) -> TurnRecord:
    """Return a goal or task, of which `kind` says what its turns are."""
    is_goal = kind == _GOAL
    spec = (
        {**found["goal_spec"], "agent_name": found["agent_name"]}
        if is_goal
        else {name: found[name] for name in ("description", "agent_name", "dependencies")}
    )
    return TurnRecord(
        record_id=found["goal_id" if is_goal else "job_id"],
        kind=kind,
        session_id=found["session_id"],
        spec=spec,
        status=Status(found["status"]),
        iterations=found["iteration_count"] if is_goal else 0,
        progress=found["iterations"] if is_goal else (),
        fence=found["fence"],
        claimed_by=found["owner_host" if is_goal else "claimed_by"],
        claimed_at_ms=found["claim_unix_ms"],
        renewed_at_ms=found["updated_at_ms"],
        dispatch_host=found["dispatch_host"],
        executed_by=found["executed_by"],
        result=found["result"],
        error=found["error"],
        created_at_ms=found["created_at_ms"],
        updated_at_ms=found["updated_at_ms"],
    )
