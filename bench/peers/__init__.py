"""What other task queues do on this machine: the same empty job, on their own servers.

Dramatiq, Taskiq and Celery on Redis, Procrastinate on PostgreSQL, each with its defaults but for
what a worker may run at once.  Redis keeps nothing on disk here.  They are installed into an
environment of their own the first time.
"""

from __future__ import annotations

from bench.lab import Lab
from bench.peers.environment import environment
from bench.peers.peer import Latency, Measured, Peer
from bench.row import Row

_SLOTS = 16
_FEW_SLOTS = 4
_RATE = 50
_SECONDS = 8
_BACKLOG, _ADDED, _SLEEP_MS = 5_000, 50, 5


def _celery(slots: int) -> list[str]:
    quiet = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return ["celery", "-A", "on_celery", "worker", "-c", str(slots), *quiet]


def _taskiq(slots: int) -> list[str]:
    few = ["--workers", "1", "--max-async-tasks", str(slots), "--log-level", "ERROR"]
    return ["taskiq", "worker", "on_taskiq:broker", *few]


def _procrastinate(slots: int) -> list[str]:
    return ["procrastinate", "--app=on_procrastinate.app", "worker", "-c", str(slots), "-q", "jobs"]


PEERS = (
    Peer(
        "dramatiq",
        "on_dramatiq",
        6_000,
        lambda slots: ["dramatiq", "on_dramatiq", "-p", "1", "-t", str(slots)],
    ),
    Peer("taskiq", "on_taskiq", 3_000, _taskiq),
    Peer("celery", "on_celery", 2_000, _celery),
    Peer(
        "procrastinate",
        "on_procrastinate",
        500,
        _procrastinate,
        setup=("python", "on_procrastinate.py"),
    ),
)


def measure(lab: Lab) -> list[Row]:
    """Rounds of each peer; rows without targets, to stand beside those of our own queues."""
    rows: list[Row] = []
    with environment(lab.folder) as place:
        for peer in PEERS:
            measured = Measured(peer, place)
            jobs, backlog = lab.scaled(peer.jobs), lab.scaled(_BACKLOG)
            runs = [measured.enqueued_and_drained(jobs, 1, _SLOTS) for _ in range(lab.rounds)]
            two = [measured.enqueued_and_drained(jobs, 2, _SLOTS)[1] for _ in range(lab.rounds)]
            times: list[Latency] = [
                measured.latency(_RATE, _SECONDS, _SLOTS) for _ in range(lab.rounds)
            ]
            waits = [
                measured.other_tenant_s(backlog, _ADDED, _SLEEP_MS, _FEW_SLOTS)
                for _ in range(lab.rounds)
            ]
            name = f"peer_{peer.name}"
            rows += [
                Row(f"{name}_enqueued", "jobs/s", [sent for sent, _ in runs]),
                Row(f"{name}_one_worker", "jobs/s", [drained for _, drained in runs]),
                Row(f"{name}_two_workers", "jobs/s", two),
                Row(f"{name}_start_p50_at_{_RATE}", "ms", [each.p50 for each in times]),
                Row(f"{name}_start_p99_at_{_RATE}", "ms", [each.p99 for each in times]),
                Row(f"{name}_other_tenant", "s", waits),
            ]
    return rows
