"""A partition of the scheduler under a log that the test writes: jobs, workers, their words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streams.core import scheduler_policy
from streams.core.manifest import canonical_json
from streams.testing.builders import policy
from tests.support.revisions import revision
from tests.support.stage_log import START_MS, Out, StageLog

QUEUE = "triage"


def ready_job(offset: int, tenant: str = "a", **fields: Any) -> dict[str, Any]:
    """A job as the relay tells it."""
    said: dict[str, Any] = {
        "offset": offset,
        "occurred_at_ms": START_MS,
        "priority": "normal",
        "tenant_id": tenant,
        "binding_key": "triage@v1",
        "trigger_id": "triage",
        "event_id": f"trigger_evt_{offset}",
        "traceparent": None,
        "body": b"body",
    }
    return {**said, **fields}


class SchedulerLog(StageLog):
    """One queue, its workers, and what is claimed."""

    def __init__(self, **policy_fields: Any) -> None:
        super().__init__("scheduler")
        self.next_offset = 0
        self.seqs: dict[str, int] = {}
        self.revision = 0
        self.policy(**policy_fields)

    def policy(self, **fields: Any) -> list[Out]:
        """Put a policy in force."""
        self.revision += 1
        said = {**policy(), "scheduler": {**scheduler_policy.DEFAULT, **fields}}
        return self.add("revision_published", {**revision(self.revision), "policy": said})

    def ready(self, *tenants: str, **fields: Any) -> list[Out]:
        """Jobs of these tenants come, in order."""
        jobs = [ready_job(self.next_offset + at, each, **fields) for at, each in enumerate(tenants)]
        first = self.next_offset
        self.next_offset += len(jobs)
        return self.relay(jobs, first)

    def relay(self, jobs: Sequence[dict[str, Any]], first: int) -> list[Out]:
        """Tell jobs as the relay does."""
        following = jobs[-1]["offset"] + 1
        return self.add(
            "jobs_ready",
            {
                "queue": QUEUE,
                "shard": None,
                "shards": 1,
                "source_partition": 0,
                "first_offset": first,
                "next_offset": following,
                "jobs": jobs,
            },
            key=QUEUE,
        )

    def beat(
        self,
        worker: str = "w1",
        capacity: int = 1,
        claims: Sequence[str] = (),
        *,
        incarnation: str = "i1",
        ttl_ms: int = 300_000,
        **fields: Any,
    ) -> list[Out]:
        """A worker's heartbeat; `claims` are claim ids."""
        self.seqs[worker + incarnation] = seq = self.seqs.get(worker + incarnation, 0) + 1
        listed = [
            {"queue": QUEUE, "job_event_id": each.partition(".")[0], "claim_id": each}
            for each in claims
        ]
        said: dict[str, Any] = {
            "consumer_id": worker,
            "incarnation": incarnation,
            "deliveries_partition": 0,
            "queues": [QUEUE],
            "capacity": capacity,
            "claims": listed,
            "claim_ttl_ms": ttl_ms,
            "draining": False,
            "once": False,
            "divided": False,
            "seq": seq,
        }
        return self.add("worker_heartbeat", {**said, **fields}, key=QUEUE)

    def ack(self, *claims: str, worker: str = "w1") -> list[Out]:
        """A worker has finished jobs."""
        return self._word("ack_requested", "acks", claims, worker)

    def release(self, *claims: str, worker: str = "w1") -> list[Out]:
        """A worker gives jobs back."""
        return self._word("release_requested", "claims", claims, worker)

    def renew(self, *claims: str, worker: str = "w1", ttl_ms: int = 300_000) -> list[Out]:
        """A worker is still at it."""
        named = [
            {"queue": QUEUE, "job_event_id": each.partition(".")[0], "claim_id": each}
            for each in claims
        ]
        said = {"consumer_id": worker, "incarnation": "i1", "claim_ttl_ms": ttl_ms}
        return self.add("renew_requested", {**said, "claims": named}, key=QUEUE)

    def register(self, digest: str = "d1", **gates: dict[str, Any]) -> list[Out]:
        """A worker says which gates each trigger has."""
        said = [
            {"trigger_id": trigger_id, "definition": canonical_json(definition)}
            for trigger_id, definition in gates.items()
        ]
        value = {"queue": QUEUE, "consumer_id": "w1", "digest": digest, "gates": said}
        return self.add("consumer_registered", value, key=QUEUE)

    def ask(self, *claims: str, worker: str = "w1", **keys: str) -> list[Out]:
        """A worker asks whether jobs may start; `keys` are those of each of them, by gate."""
        jobs = [
            {
                "job_event_id": each.partition(".")[0],
                "claim_id": each,
                "trigger_id": "triage",
                "dispatch_id": f"dispatch-{each.partition('.')[0]}",
                "keys": keys,
            }
            for each in claims
        ]
        said = {"queue": QUEUE, "consumer_id": worker, "incarnation": "i1", "jobs": jobs}
        return self.add("gates_requested", said, key=QUEUE)

    def purge(self) -> list[Out]:
        """An operator purges."""
        said = {"queue": QUEUE, "request_id": "r1", "purged_by": "me", "deliveries_partition": 0}
        return self.add("purge_requested", said, key=QUEUE)

    def summary(self) -> dict[str, Any]:
        """Ask how the queue stands."""
        outs = self.add("summary_requested", {"queue": QUEUE, "request_id": "s"}, key=QUEUE)
        return next(out.value for out in outs if out.kind == "queue_summary")

    def _word(self, kind: str, field: str, claims: Sequence[str], worker: str) -> list[Out]:
        named = [{"job_event_id": each.partition(".")[0], "claim_id": each} for each in claims]
        said = {"queue": QUEUE, "consumer_id": worker, "incarnation": "i1", field: named}
        return self.add(kind, said, key=QUEUE)


def claimed(outs: Sequence[Out]) -> list[str]:
    """Claim ids given."""
    return [out.value["claim_id"] for out in outs if out.kind == "job_claimed"]


def keys(outs: Sequence[Out]) -> str:
    """Fairness keys of what was claimed, in order."""
    return " ".join(out.value["fairness_key"] for out in outs if out.kind == "job_claimed")


def said(outs: Sequence[Out]) -> list[str]:
    """Kinds on the claims topic, in order."""
    return [out.kind for out in outs if out.topic == f"worker.{QUEUE}.claims"]


def answers(outs: Sequence[Out]) -> str:
    """What the gates said of each job that was asked for, in order."""
    answered = [out.value for out in outs if out.kind == "gates_answered"]
    return " ".join(each["answer"] for value in answered for each in value["answers"])


def admitted(outs: Sequence[Out]) -> list[str]:
    """Claims that were admitted."""
    return [out.value["claim_id"] for out in outs if out.kind == "job_admitted"]
