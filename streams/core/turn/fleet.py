"""The workers that run turns, as their heartbeats tell of them.

A worker says every HEARTBEAT_MS that it lives, while turns run as well: a long turn must not make
it vanish.  One that was not heard of for longer than WORKER_TTL_MS is not there.

Source: SEMANTICS 8.9, 10.1 A3; seed queue-driven-agent-dispatch, "Fleet visibility".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streams.core.wire import FleetWorker

__all__ = ["HEARTBEAT_MS", "SESSIONS_SHOWN_MAX", "WORKER_TTL_MS", "Presence", "alive", "is_alive"]

HEARTBEAT_MS = 30_000
WORKER_TTL_MS = 90_000

SESSIONS_SHOWN_MAX = 1_000
"""Sessions that a heartbeat names: the rest runs all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A worker since it began; `token` is that of its claims."""

    worker_id: str
    token: str
    host: str
    capacity: int
    queue_backend: str
    started_at_ms: int

    def heartbeat(
        self,
        *,
        active_sessions: Iterable[str],
        partitions: Iterable[int] = (),
        draining: bool = False,
        now_ms: int,
    ) -> FleetWorker:
        """Make the record of a heartbeat: equal facts make equal records."""
        return {
            "worker_id": self.worker_id,
            "token": self.token,
            "host": self.host,
            "capacity": self.capacity,
            "active_sessions": sorted(active_sessions)[:SESSIONS_SHOWN_MAX],
            "queue_backend": self.queue_backend,
            "partitions": sorted(partitions),
            "draining": draining,
            "started_at_ms": self.started_at_ms,
            "last_heartbeat_ms": now_ms,
        }


def is_alive(worker: FleetWorker, now_ms: int, /) -> bool:
    """Whether a worker was heard of recently enough."""
    return now_ms - worker["last_heartbeat_ms"] <= WORKER_TTL_MS


def alive(workers: Iterable[FleetWorker], now_ms: int, /) -> list[FleetWorker]:
    """Return the workers that are there, the last heard of first."""
    found = [worker for worker in workers if is_alive(worker, now_ms)]
    return sorted(found, key=lambda worker: (-worker["last_heartbeat_ms"], worker["worker_id"]))
