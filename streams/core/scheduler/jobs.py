"""What becomes of jobs: ready, returned, done, dead.

Source: SEMANTICS 5.2; DESIGN "A job", law 8, decision A4.
"""

from __future__ import annotations

from streams.core.record import Output, Position
from streams.core.scheduler.book import Book, Claim, Queue
from streams.core.scheduler.grants import headers_of
from streams.core.scheduler.job_id import claim_id, job_id, place_by_id, place_of
from streams.core.scheduler.policy import RANKS, fairness_key
from streams.core.scheduler.returned import is_delayed
from streams.core.state import State
from streams.core.wire import (
    DeathReason,
    JobAcked,
    JobDead,
    JobRejected,
    JobsReady,
    RecordQuarantined,
    RowJob,
    RowReturned,
)

DLQ = "trigger.dlq"


def on_jobs_ready(state: State, book: Book, home: str, ready: JobsReady, /) -> list[Output]:
    """Take the jobs that are new; a repeat of the relay is dropped."""
    queue = book.queue(home)
    queue.known, queue.shards = True, ready["shards"]
    partition = ready["source_partition"]
    following = queue.relayed.get(partition, 0)
    if ready["next_offset"] <= following:
        return []
    room = book.policy["max_waiting"] - queue.waiting
    dimension, rows, selection = book.policy["fairness_key"], state.rows, queue.selection
    outputs: list[Output] = []
    for job in ready["jobs"]:
        offset = job["offset"]
        if offset < following:
            continue
        row: RowJob = {
            "occurred_at_ms": job["occurred_at_ms"],
            "priority": job["priority"] if job["priority"] in RANKS else "normal",
            "tenant_id": job["tenant_id"],
            "binding_key": job["binding_key"],
            "trigger_id": job["trigger_id"],
            "event_id": job["event_id"],
            "traceparent": job["traceparent"],
            "body": job["body"],
        }
        job_event_id = job_id(partition, offset)
        if room <= 0:
            outputs.append(_dead(state, queue, job_event_id, row, "queue_full", 0))
            continue
        room -= 1
        rows.put(f"j:{home}:{job_event_id}", row)
        key = selection.key(fairness_key(dimension, row))
        if not key.ready and not key.in_flight:
            selection.dirty.add(key.name)
        place = place_of(row["occurred_at_ms"], partition, offset)
        selection.add(key, place, RANKS[row["priority"]])
    queue.relayed[partition] = ready["next_offset"]
    book.dirty[home] = queue
    return outputs


def on_job_rejected(book: Book, home: str, rejected: JobRejected, /) -> list[Output]:
    """Quarantine what is no job, under its own position, once."""
    queue, partition = book.queue(home), rejected["source_partition"]
    queue.known = True
    if rejected["offset"] < queue.relayed.get(partition, 0):
        return []
    queue.relayed[partition] = rejected["offset"] + 1
    book.dirty[home] = queue
    position = Position(rejected["topic"], partition, rejected["offset"])
    value: RecordQuarantined = {
        "stage": "scheduler",
        "topic": rejected["topic"],
        "partition": partition,
        "offset": rejected["offset"],
        "timestamp_ms": rejected["timestamp_ms"],
        "code": "oversized" if rejected["oversized"] else "undecodable",
        "reason": rejected["reason"],
        "kind": rejected["kind"],
        "key": rejected["key"],
        "raw": rejected["raw"],
        "raw_size": rejected["raw_size"],
        "raw_sha256": rejected["raw_sha256"],
    }
    return [Output(DLQ, "record_quarantined", str(position), value)]


def row_of(state: State, queue: Queue, job: str, /) -> RowJob:
    """Return the row of a job that is in the queue."""
    row: RowJob | None = state.rows.get(f"j:{queue.home}:{job}")
    assert row is not None, "a job in the queue has a row"
    return row


def give_back(
    state: State, book: Book, queue: Queue, claim: Claim, /, *, deliveries: int, expired: bool
) -> list[Output]:
    """End a claim whose job is not done: it is ready again, parked, or dead.

    A worker that takes what there is gets no job twice: it waits until that worker has left.
    """
    book.let_go(queue, claim)
    deliveries_max = book.policy["max_deliveries"]
    if 0 < deliveries_max <= deliveries:
        row = row_of(state, queue, claim.job)
        state.rows.delete(f"j:{queue.home}:{claim.job}")
        return [_dead(state, queue, claim.job, row, "max_deliveries", deliveries)]
    worker = book.workers.get(claim.consumer_id)
    returned: RowReturned = {
        "fence": claim.fence,
        "deliveries": deliveries,
        "consumer_id": claim.consumer_id,
        "incarnation": "" if worker is None else worker["incarnation"],
        "open": expired,
        "parked": worker is not None and worker["once"] and not worker["draining"],
        "not_before_ms": None,
    }
    _store_returned(state, queue, claim.job, returned)
    if not is_delayed(returned):
        queue.selection.add(claim.key, claim.place, claim.rank)
    return []


def _store_returned(state: State, queue: Queue, job: str, returned: RowReturned) -> None:
    queue.returned[job] = returned
    state.rows.put(f"n:{queue.home}:{job}", returned)


def make_ready(state: State, book: Book, queue: Queue, job: str, /) -> None:
    """A returned job waits for nothing any more."""
    returned: RowReturned = {**queue.returned[job], "parked": False, "not_before_ms": None}
    _store_returned(state, queue, job, returned)
    row = row_of(state, queue, job)
    key = queue.selection.key(fairness_key(book.policy["fairness_key"], row))
    place = place_by_id(row["occurred_at_ms"], job)
    queue.selection.add(key, place, RANKS[row["priority"]])
    queue.selection.dirty.add(key.name)
    book.dirty[queue.home] = queue


def unpark(state: State, book: Book, consumer_id: str, /) -> None:
    """A worker that takes what there is has left: what it gave back is ready again."""
    for home in sorted(book.queues):
        queue = book.queues[home]
        for job in queue.returned.parked_of(consumer_id):
            make_ready(state, book, queue, job)


def take_returned(state: State, book: Book, queue: Queue, job: str, /) -> tuple[RowJob, Claim]:
    """Take a job whose last claim has expired out of those that wait; return what it was."""
    returned = queue.returned.pop(job)
    assert returned is not None, "only what was given back is taken"
    state.rows.delete(f"n:{queue.home}:{job}")
    row = row_of(state, queue, job)
    key = queue.selection.key(fairness_key(book.policy["fairness_key"], row))
    place, rank = place_by_id(row["occurred_at_ms"], job), RANKS[row["priority"]]
    if not is_delayed(returned):
        queue.selection.remove(key, place)
    queue.selection.dirty.add(key.name)
    book.dirty[queue.home] = queue
    last = (returned["fence"], returned["deliveries"], state.now_ms, returned["consumer_id"])
    return row, Claim(job, place, rank, key, *last)


def done(state: State, queue: Queue, claim: Claim, row: RowJob, /) -> Output:
    """A job is done: it leaves the queue."""
    state.rows.delete(f"j:{queue.home}:{claim.job}")
    queue.acked += 1
    acked: JobAcked = {
        "queue": queue.queue,
        "job_event_id": claim.job,
        "claim_id": claim_id(claim.job, claim.fence),
        "consumer_id": claim.consumer_id,
        "fence": claim.fence,
        "skipped_by": None,
        "acked_at_ms": state.now_ms,
    }
    return Output(queue.claims_topic, "job_acked", claim.job, acked, headers=headers_of(row))


def _dead(
    state: State, queue: Queue, job: str, row: RowJob, reason: DeathReason, deliveries: int
) -> Output:
    queue.dead += 1
    dead: JobDead = {
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
    return Output(queue.claims_topic, "job_dead", job, dead, headers=headers_of(row))
