"""How a job leaves its queue: done, skipped by a gate, or dead.

A job that a gate skips is answered here, in the transaction that acks it: no worker has it, and the
answer must be in the log no later than the ack.

Source: SEMANTICS 5.2; DESIGN "A job", law 8, decision A4.
"""

from __future__ import annotations

from streams.core.record import Output
from streams.core.scheduler.book import Claim, Queue
from streams.core.scheduler.job_id import claim_id
from streams.core.state import State
from streams.core.wire import DeathReason, JobAcked, JobDead, JobResponse, RowGated, RowJob
from streams.core.worker_queue import responses_of


def headers_of(row: RowJob, /) -> tuple[tuple[str, str], ...]:
    """Headers that follow a job into what is decided about it."""
    headers: tuple[tuple[str, str], ...] = ()
    if row["tenant_id"] is not None:
        headers = (("tenant_id", row["tenant_id"]),)
    if row["traceparent"] is not None:
        headers = (*headers, ("traceparent", row["traceparent"]))
    return headers


def row_of(state: State, queue: Queue, job: str, /) -> RowJob:
    """Return the row of a job that is in the queue."""
    row: RowJob | None = state.rows.get(f"j:{queue.home}:{job}")
    assert row is not None, "a job in the queue has a row"
    return row


def done(
    state: State, queue: Queue, claim: Claim, row: RowJob, skipped_by: str | None = None, /
) -> Output:
    """A job is done, or a gate skipped it: it leaves the queue."""
    state.rows.delete(f"j:{queue.home}:{claim.job}")
    queue.acked += 1
    acked: JobAcked = {
        "queue": queue.queue,
        "job_event_id": claim.job,
        "claim_id": claim_id(claim.job, claim.fence),
        "consumer_id": claim.consumer_id,
        "fence": claim.fence,
        "skipped_by": skipped_by,
        "acked_at_ms": state.now_ms,
    }
    return Output(queue.claims_topic, "job_acked", claim.job, acked, headers=headers_of(row))


def skipped(
    state: State, queue: Queue, claim: Claim, row: RowJob, gated: RowGated, gate: str, /
) -> list[Output]:
    """A gate skips a job: it is answered, and leaves the queue."""
    response: JobResponse = {
        "queue": queue.queue,
        "job_event_id": claim.job,
        "claim_id": claim_id(claim.job, claim.fence),
        "consumer_id": claim.consumer_id,
        "trigger_id": gated["trigger_id"],
        "event_id": row["event_id"],
        "dispatch_id": gated["dispatch_id"],
        "handled_at_ms": state.now_ms,
        "outcome": "skipped",
        "result": None,
        "error": None,
        "claim_lost": False,
        "skipped_by": gate,
    }
    topic = responses_of(queue.queue)
    said = Output(topic, "job_response", claim.job, response, headers=headers_of(row))
    return [said, done(state, queue, claim, row, gate)]


def dead(
    state: State, queue: Queue, job: str, row: RowJob, reason: DeathReason, deliveries: int, /
) -> Output:
    """A job leaves the queue undone; what it was is in the record."""
    state.rows.delete(f"j:{queue.home}:{job}")
    queue.dead += 1
    said: JobDead = {
        "queue": queue.queue,
        "job_event_id": job,
        "reason": reason,
        "deliveries": deliveries,
        "trigger_id": row["trigger_id"],
        "event_id": row["event_id"],
        "occurred_at_ms": row["occurred_at_ms"],
        "dead_at_ms": state.now_ms,
        "body": row["body"],
    }
    return Output(queue.claims_topic, "job_dead", job, said, headers=headers_of(row))
