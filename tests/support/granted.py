"""A worker as a process, and the scheduler's part played by a test: record by record."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.app_cluster import read
from tests.support.fleet import Member, wait_until
from tests.support.invoker_edge import CODEC


class WorkerProcess(Member):
    """`harn worker run`, as an operator runs it."""

    @property
    def command(self) -> Sequence[str]:
        return sys.executable, "-m", "streams.cli.main", "worker", "run"


@dataclass
class Scheduler:
    """Grants by hand, and reads what the worker says."""

    settings: Settings
    queue: str
    consumer_id: str

    def said(self, kind: str) -> list[dict[str, Any]]:
        """Everything of a kind that this worker said, in order."""
        return [
            each.value
            for each in read(self.settings, "worker.requests", {kind})
            if each.value["consumer_id"] == self.consumer_id
        ]

    def heartbeat(self, *, after: str = "") -> dict[str, Any]:
        """Wait for a heartbeat of another incarnation than `after`; return the last one."""

        def look() -> list[dict[str, Any]]:
            return [each for each in self.said("worker_heartbeat") if each["incarnation"] != after]

        return wait_until(f"a heartbeat of {self.consumer_id}", look)[-1]

    def grant(self, heartbeat: dict[str, Any], *jobs: tuple[int, bytes], fence: int = 1) -> None:
        """Grant jobs, each an id and a body, to the incarnation that a heartbeat names."""
        value = {
            "consumer_id": self.consumer_id,
            "incarnation": heartbeat["incarnation"],
            "queue": self.queue,
            "granted_at_ms": 1,
            "claim_ttl_ms": heartbeat["claim_ttl_ms"],
            "jobs": [
                {
                    "job_event_id": str(job_id),
                    "claim_id": f"{job_id}.{fence}",
                    "fence": fence,
                    "delivery": fence,
                    "occurred_at_ms": 0,
                    "expires_at_ms": 1,
                    "body": body,
                }
                for job_id, body in jobs
            ],
        }
        producer = make_producer(self.settings)
        producer.produce(
            "worker.deliveries",
            CODEC.encode("jobs_granted", value),
            self.consumer_id,
            heartbeat["deliveries_partition"],
            headers=[("kind", b"jobs_granted")],
        )
        assert producer.flush(30) == 0

    def broker_ms(self) -> int:
        """Return the broker's time: what it stamps a record of the mailbox with."""
        found: list[int] = []
        producer = make_producer(self.settings)
        producer.produce(
            "worker.requests",
            b"tick",
            on_delivery=lambda _error, message: found.append(message.timestamp()[1]),
        )
        assert producer.flush(30) == 0
        return found[0]

    @property
    def responses(self) -> dict[str, dict[str, Any]]:
        """Responses by claim."""
        found = read(self.settings, f"worker.{self.queue}.responses")
        return {each.value["claim_id"]: each.value for each in found}

    @property
    def acked(self) -> set[str]:
        return {ack["claim_id"] for each in self.said("ack_requested") for ack in each["acks"]}

    @property
    def released(self) -> set[str]:
        return {
            claim["claim_id"] for each in self.said("release_requested") for claim in each["claims"]
        }


def worker_process(
    settings: Settings, folder: Path, manifest: Path, scheduler: Scheduler, *options: str
) -> WorkerProcess:
    """A worker of one queue, not started yet."""
    options = ("--config", str(manifest), "--consumer-id", scheduler.consumer_id, *options)
    return WorkerProcess("worker", "", settings, folder, arguments=(scheduler.queue, *options))
