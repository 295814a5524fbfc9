"""A worker's seams in memory: grants that a test delivers, and a log that it reads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streams.core.manifest import Manifest, parse_manifest
from streams.edge.handlers import Handlers
from streams.edge.worker import Worker, WorkerPlan
from streams.edge.worker.consumer import Consumer
from streams.edge.worker.deliveries import Delivered, DeliverySink
from streams.edge.worker.observer import Unobserved
from streams.edge.worker.seams import Seams
from streams.expressions import EXPRESSIONS
from streams.settings import Settings
from streams.testing import event
from tests.support.invoker_edge import CODEC, Appended, LogInMemory

CONSUMER_ID = "worker-a"
TTL_MS = 60_000


class ListDeliveries:
    """Delivers what the test says."""

    def __init__(self) -> None:
        self.partition = 3
        self.request_partitions = 4
        self.sink: DeliverySink | None = None
        self.stopped = False

    async def start(self, sink: DeliverySink) -> None:
        self.sink = sink

    async def stop(self) -> None:
        self.stopped = True


class Counts(Unobserved):
    """What an observer was told."""

    def __init__(self) -> None:
        self.settlements: Counter[bool] = Counter()
        self.lost = 0
        self.blocked = threading.Event()

    def settled(self, queue: str, count: int, *, acked: bool) -> None:
        assert queue, "an answer is of a queue"
        self.settlements[acked] += count

    def claims_lost(self, count: int) -> None:
        self.lost += count

    def loop_blocked(self) -> None:
        self.blocked.set()


def trigger(trigger_id: str, handler: str, **more: Any) -> dict[str, Any]:
    """A table of `[[triggers]]`."""
    return {
        "id": trigger_id,
        "kind": "webhook",
        "provider": "github",
        "match": {"events": ["issues.opened"]},
        "handler": handler,
        **more,
    }


def consumer_of(
    functions: Mapping[str, Callable[..., Any]], triggers: Sequence[dict[str, Any]]
) -> Consumer:
    """A consumer manifest of these triggers, whose handlers are these functions."""
    parsed = parse_manifest({"triggers": list(triggers)}, "harn.toml", EXPRESSIONS)
    assert isinstance(parsed, Manifest), parsed
    return Consumer(parsed.bindings, Handlers.of(functions))


def body_of(
    trigger_id: str, number: int, payload: object = None, *, tenant_id: str | None = None
) -> bytes:
    """A job's record, as it stands on its queue's topic."""
    return CODEC.encode(
        "trigger_dispatch",
        {
            "queue": "triage",
            "dispatch_id": f"dispatch-{number}",
            "trigger_id": trigger_id,
            "binding_key": f"{trigger_id}@v9",
            "binding_version": 9,
            "event": event(f"e{number}", payload=payload, tenant_id=tenant_id),
        },
    )


class WorkerRig:
    """A worker whose only handlers are the functions given."""

    def __init__(
        self,
        *triggers: dict[str, Any],
        functions: Mapping[str, Callable[..., Any]],
        queue_keys: Sequence[str] = ("triage",),
        concurrency: int = 2,
        once: bool = False,
        drain_ms: int = 10_000,
        ttl_ms: int = TTL_MS,
        exit_now: Callable[[int], object] = os._exit,
    ) -> None:
        self.log = LogInMemory()
        self.deliveries = ListDeliveries()
        self.counts = Counts()
        self.worker = Worker(
            Settings(drain_ms=drain_ms),
            self.log,
            CODEC,
            consumer_of(functions, triggers),
            WorkerPlan(
                consumer_id=CONSUMER_ID,
                queue_keys=queue_keys,
                concurrency=concurrency,
                claim_ttl_ms=ttl_ms,
                once=once,
            ),
            observer=self.counts,
            seams=Seams(
                deliveries=self.deliveries, clock=lambda: 1_700_000_000_000, exit_now=exit_now
            ),
        )

    async def start(self) -> WorkerRig:
        await self.worker.start()
        return self

    def grant(
        self,
        *jobs: tuple[int, bytes],
        queue_key: str = "triage",
        fence: int = 1,
        incarnation: str | None = None,
        admitted: bool = False,
        digest: str = "",
        fairness_key: str = "",
    ) -> None:
        """Grant jobs, each an id and a body."""
        value = {
            "consumer_id": CONSUMER_ID,
            "incarnation": self.worker.incarnation if incarnation is None else incarnation,
            "queue": queue_key,
            "granted_at_ms": 1,
            "claim_ttl_ms": TTL_MS,
            "gates_digest": digest,
            "jobs": [
                {
                    "job_event_id": str(job_id),
                    "claim_id": f"{job_id}.{fence}",
                    "fence": fence,
                    "delivery": fence,
                    "occurred_at_ms": 0,
                    "expires_at_ms": 1 + TTL_MS,
                    "traceparent": None,
                    "admitted": admitted,
                    "fairness_key": fairness_key,
                    "body": body,
                }
                for job_id, body in jobs
            ],
        }
        self.deliver("jobs_granted", value)

    def gates_answer(self, queue_key: str = "triage", **answers: str) -> None:
        """Answer for claims, each by the job's id with a `j` before it."""
        value = {
            "consumer_id": CONSUMER_ID,
            "incarnation": self.worker.incarnation,
            "queue": queue_key,
            "answers": [
                {"claim_id": f"{job.removeprefix('j')}.1", "answer": answer}
                for job, answer in answers.items()
            ],
        }
        self.deliver("gates_answered", value)

    @property
    def asked(self) -> list[str]:
        """Claims that gates were asked for, in order."""
        return [job["claim_id"] for each in self.values("gates_requested") for job in each["jobs"]]

    def nothing_ready(self, seq: int, queue_key: str = "triage") -> None:
        """Answer a heartbeat of a worker that runs once."""
        value = {
            "consumer_id": CONSUMER_ID,
            "incarnation": self.worker.incarnation,
            "queue": queue_key,
            "seq": seq,
        }
        self.deliver("nothing_ready", value)

    def deliver(self, kind: str, value: Mapping[str, Any]) -> None:
        self.worker.take([Delivered(0, kind, CODEC.encode(kind, value))])

    def values(self, kind: str) -> list[dict[str, Any]]:
        return [each.value for each in self.log.of_kind(kind)]

    @property
    def responses(self) -> dict[str, dict[str, Any]]:
        """The last response of each claim."""
        return {each["claim_id"]: each for each in self.values("job_response")}

    @property
    def acked(self) -> list[str]:
        """Claims that were acked, in order."""
        return [ack["claim_id"] for each in self.values("ack_requested") for ack in each["acks"]]

    @property
    def released(self) -> list[str]:
        return [
            claim["claim_id"]
            for each in self.values("release_requested")
            for claim in each["claims"]
        ]

    @property
    def renewed(self) -> list[str]:
        return [
            claim["claim_id"] for each in self.values("renew_requested") for claim in each["claims"]
        ]

    @property
    def heartbeat(self) -> dict[str, Any]:
        """The last heartbeat."""
        return self.values("worker_heartbeat")[-1]

    @property
    def listed(self) -> list[str]:
        """Claims that the last heartbeat lists."""
        return [claim["claim_id"] for claim in self.heartbeat["claims"]]

    def place_of(self, kind: str) -> Appended:
        return self.log.of_kind(kind)[-1]


async def settle() -> None:
    """Let everything that is quick happen."""
    await asyncio.sleep(0.1)
