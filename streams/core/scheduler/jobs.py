"""What becomes of jobs: they are ready, and come back when a claim ends undone.

Source: SEMANTICS 5.2; DESIGN "A job", law 8, decision A4.
"""

from __future__ import annotations

from streams.core.record import Output, Position
from streams.core.scheduler import gates
from streams.core.scheduler.book import Book, Claim, Queue
from streams.core.scheduler.endings import dead, row_of
from streams.core.scheduler.job_id import job_id, place_of
from streams.core.scheduler.policy import RANKS, fairness_key
from streams.core.scheduler.returned import is_delayed
from streams.core.scheduler.unclaimed import store_returned
from streams.core.state import State
from streams.core.wire import (
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
    partition = ready["source_partition"]
    following = queue.relayed.get(partition, 0)
    if ready["next_offset"] <= following:
        return []  # and nothing of it is taken: a row that is not written would not have it
    queue.known, queue.shards = True, ready["shards"]
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
            outputs.append(dead(state, queue, job_event_id, row, "queue_full", 0))
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
    if rejected["offset"] < queue.relayed.get(partition, 0):
        return []
    queue.known = True
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


def give_back(
    state: State, book: Book, queue: Queue, claim: Claim, /, *, deliveries: int, expired: bool
) -> list[Output]:
    """End a claim whose job is not done: it is ready again, parked, or dead.

    A worker that takes what there is gets no job twice: it waits until that worker has left.
    """
    book.let_go(queue, claim)
    deliveries_max = book.policy["max_deliveries"]
    if 0 < deliveries_max <= deliveries:
        gates.forget(state, book, queue, claim.job)
        row = row_of(state, queue, claim.job)
        return [dead(state, queue, claim.job, row, "max_deliveries", deliveries)]
    gates.let_go(state, book, queue, claim.job)
    worker = book.workers.get(claim.consumer_id)
    returned: RowReturned = {
        "fence": claim.fence,
        "deliveries": deliveries,
        "consumer_id": claim.consumer_id,
        "incarnation": "" if worker is None else worker["incarnation"],
        "open": expired,
        "parked": worker is not None and worker["once"] and not worker["draining"],
        "not_before_ms": None,
        "gated": False,
    }
    store_returned(state, queue, claim.job, returned)
    if not is_delayed(returned):
        queue.selection.add(claim.key, claim.place, claim.rank)
    return []
