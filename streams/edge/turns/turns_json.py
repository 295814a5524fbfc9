"""Goals, tasks, sessions and workers as the HTTP API and `harn fleet` tell of them.

Moments are seconds since the epoch, as in envelopes.

Source: SEMANTICS 8.9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streams.edge.turns.turn_store import FleetWorker, Session, TurnRecord

__all__ = ["goal_json", "job_json", "topology_json", "worker_json"]


def goal_json(record: TurnRecord, /, *, whole: bool = False) -> dict[str, Any]:
    """Return a goal: what it is, and how it stands; a `whole` one with its newest iterations."""
    iterations = {"iterations": [_iteration(each) for each in record.progress]} if whole else {}
    return {
        "goal_id": record.record_id,
        "session_id": record.session_id,
        "status": record.status.value,
        **record.spec,
        "iteration_count": record.iterations,
        **iterations,
        "owner_host": record.claimed_by,
        **_ran(record),
        "result": record.result,
        "error": record.error,
    }


def job_json(record: TurnRecord, /) -> dict[str, Any]:
    """Return an orchestrator task: what it is, and how it stands."""
    return {
        "job_id": record.record_id,
        "session_id": record.session_id,
        "status": record.status.value,
        "agent_name": "",
        "dependencies": [],
        **record.spec,
        "claimed_by": record.claimed_by,
        **_ran(record),
        **({} if record.result is None else {"result": record.result}),
        **({} if record.error is None else {"error": record.error}),
    }


def worker_json(worker: FleetWorker, /) -> dict[str, Any]:
    """Return a worker, as of its last heartbeat."""
    return {
        "worker_id": worker.worker_id,
        "host": worker.host,
        "capacity": worker.capacity,
        "active_sessions": list(worker.active_sessions),
        "queue_backend": worker.queue_backend,
        "started_at": worker.started_at_ms / 1_000,
        "last_heartbeat": worker.last_heartbeat_ms / 1_000,
    }


def topology_json(
    sessions: Sequence[Session],
    goals: Sequence[TurnRecord],
    workers: Sequence[FleetWorker],
    /,
    *,
    limit: int,
    offset: int,
) -> dict[str, Any]:
    """Return a page of the fleet: sessions by their domain, goals, and all workers that live."""
    domains: dict[str, list[dict[str, Any]]] = {}
    for session in sessions:
        domains.setdefault(session.domain, []).append(
            {
                "id": session.session_id,
                "status": session.status,
                "background": session.background,
                "needs_input": session.needs_input,
                "pause_requested": session.pause_requested,
                "kill_requested": session.kill_requested,
                "updated_at": session.updated_at_ms / 1_000,
            }
        )
    return {
        "domains": [{"domain": name, "sessions": domains[name]} for name in sorted(domains)],
        "goals": [goal_json(goal) for goal in goals],
        "dispatch_workers": [worker_json(worker) for worker in workers],
        "totals": {
            "domains": len(domains),
            "sessions": len(sessions),
            "dispatch_workers": len(workers),
        },
        "page": {"limit": limit, "offset": offset, "returned": len(sessions)},
    }


def _iteration(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: found[name] for name in ("number", "summary", "validated", "exit_code", "output")},
        "started_at": found["started_at_ms"] / 1_000,
        "ended_at": found["ended_at_ms"] / 1_000,
    }


def _ran(record: TurnRecord) -> dict[str, Any]:
    claimed_at_ms = record.claimed_at_ms
    return {
        "claim_unix": None if claimed_at_ms is None else claimed_at_ms / 1_000,
        "dispatch_host": record.dispatch_host,
        "executed_by": record.executed_by,
        "created_at": record.created_at_ms / 1_000,
        "updated_at": record.updated_at_ms / 1_000,
    }
