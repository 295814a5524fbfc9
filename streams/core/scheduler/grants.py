"""Grants: free capacity of workers meets ready jobs.

After each record, every queue that has ready jobs gives them to the workers that can take more: the
one with most room first, so that work spreads; among several queues in turn, a job each.  What a
worker gets in one go travels in few records.

Source: DESIGN "A job"; SEMANTICS 5.3.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from streams.core.record import Output
from streams.core.scheduler import gates
from streams.core.scheduler.book import Book, Claim, Queue
from streams.core.scheduler.endings import headers_of
from streams.core.scheduler.job_id import claim_id, id_at
from streams.core.scheduler.selection import Chosen
from streams.core.scheduler.unclaimed import forget_returned
from streams.core.state import State
from streams.core.wire import (
    GrantedJob,
    JobClaimed,
    JobsGranted,
    JobsWaiting,
    NothingReady,
    RowJob,
    RowTurn,
    RowWorker,
)

DELIVERIES: Final = "worker.deliveries"

GRANT_BYTES_MAX: Final = 600_000
GRANT_JOBS_MAX: Final = 500
"""A record of grants is closed when it holds so many bytes of jobs, names included, or so many
jobs: a name may be as long as its job's body."""

_JOB_OVERHEAD_BYTES: Final = 192
"""Ids, numbers and a trace of a job in a grant, at most."""

HELD_MAX: Final = 1_000
"""Claims that one worker may have in one partition: its claims on a queue are one row."""

_Granted = dict[tuple[str, str], list[GrantedJob]]


def deal(state: State, book: Book, homes: Iterable[str], /) -> list[Output]:
    """Give ready jobs of these queues to the workers that have room."""
    active = [home for home in sorted(set(homes)) if _could_grant(book, book.queue(home))]
    if not active:
        return []
    outputs: list[Output] = []
    granted: _Granted = {}
    if len(active) > 1:
        turn: RowTurn | None = state.rows.get("turn")
        after = "" if turn is None else turn["queue"]
        active = [h for h in active if h > after] + [h for h in active if h <= after]
    several, last = len(active) > 1, ""
    rooms = {home: _rooms(book, book.queue(home)) for home in active}
    while active:
        for home in tuple(active):
            queue = book.queue(home)
            if _grant(state, book, queue, rooms[home], outputs, granted):
                last = home
            else:
                active.remove(home)
    if several and last:
        row: RowTurn = {"queue": last}
        state.rows.put("turn", row)
    for (home, consumer_id), jobs in granted.items():
        outputs += _deliver(state, book.queue(home), book.workers[consumer_id], jobs)
    return outputs


def _could_grant(book: Book, queue: Queue) -> bool:
    return queue.selection.ready > 0 and any(
        book.free(book.workers[each]) > 0 for each in queue.workers
    )


def _rooms(book: Book, queue: Queue) -> list[tuple[int, str]]:
    """Workers of a queue that have room, the one with most first, then by id."""
    rooms = [(-free, each) for each in queue.workers if (free := book.free(book.workers[each])) > 0]
    heapq.heapify(rooms)
    return rooms


def _grant(
    state: State,
    book: Book,
    queue: Queue,
    rooms: list[tuple[int, str]],
    outputs: list[Output],
    granted: _Granted,
) -> bool:
    """Give one job of the queue to the worker with most room; whether there was one of each."""
    worker = _most_room(book, rooms)
    selection = queue.selection
    if worker is None or not selection.ready:
        return False
    chosen = selection.select(state.now_ms)
    book.dirty[queue.home] = queue
    if chosen is None:
        return False
    job = id_at(chosen.place)
    gated = job in queue.gates.jobs
    if gated:
        held_up = gates.at_grant(state, book, queue, chosen)
        if held_up is not None:
            outputs += held_up
            return True
    claim = _claim(state, book, queue, job, chosen, worker)
    _took(rooms)
    row: RowJob | None = state.rows.get(f"j:{queue.home}:{job}")
    assert row is not None, "a ready job has a row"
    name, consumer_id, fence = chosen.key.name, claim.consumer_id, claim.fence
    named = claim_id(job, fence)
    claimed: JobClaimed = {
        "queue": queue.queue,
        "job_event_id": job,
        "claim_id": named,
        "consumer_id": consumer_id,
        "fence": fence,
        "incarnation": worker["incarnation"],
        "delivery": claim.delivery,
        "fairness_key": name,
        "promoted": chosen.promoted,
        "claimed_at_ms": state.now_ms,
        "expires_at_ms": claim.expires_at_ms,
    }
    said = Output(queue.claims_topic, "job_claimed", job, claimed, None, headers_of(row))
    outputs.append(said)
    if gated:
        outputs.append(gates.admitted(state, queue, claim, row))
    granted.setdefault((queue.home, consumer_id), []).append(
        {
            "job_event_id": job,
            "claim_id": named,
            "fence": fence,
            "delivery": claim.delivery,
            "occurred_at_ms": row["occurred_at_ms"],
            "expires_at_ms": claim.expires_at_ms,
            "traceparent": row["traceparent"],
            "admitted": gated,
            "fairness_key": name if selection.takes_turns else "",
            "body": row["body"],
        }
    )
    return True


def _most_room(book: Book, rooms: list[tuple[int, str]]) -> RowWorker | None:
    while rooms:
        room, consumer_id = rooms[0]
        worker = book.workers[consumer_id]
        free = book.free(worker)
        if free == -room > 0:
            return worker
        if free > 0:
            heapq.heapreplace(rooms, (-free, consumer_id))
        else:
            heapq.heappop(rooms)
    return None


def _took(rooms: list[tuple[int, str]]) -> None:
    """The worker with most room has one job more; `_most_room` finds out what it has elsewhere."""
    room, consumer_id = rooms[0]
    heapq.heapreplace(rooms, (room + 1, consumer_id))


def _claim(
    state: State, book: Book, queue: Queue, job: str, chosen: Chosen, worker: RowWorker
) -> Claim:
    fence = delivery = 1
    before = forget_returned(state, queue, job) if job in queue.returned else None
    if before is not None:
        fence, delivery = before["fence"] + 1, before["deliveries"] + 1
    expires_at_ms = state.now_ms + worker["claim_ttl_ms"]
    place, rank, key = chosen.place, chosen.rank, chosen.key
    claim = Claim(job, place, rank, key, fence, delivery, expires_at_ms, worker["consumer_id"])
    book.hold(queue, claim)
    return claim


def _deliver(state: State, queue: Queue, worker: RowWorker, jobs: list[GrantedJob]) -> list[Output]:
    """Return the records that carry the jobs to their worker."""
    outputs: list[Output] = []
    part: list[GrantedJob] = []
    size = 0
    for job in jobs:
        length = _size_of(job)
        if part and (len(part) == GRANT_JOBS_MAX or size + length > GRANT_BYTES_MAX):
            outputs.append(_delivery(state, queue, worker, part))
            part, size = [], 0
        part.append(job)
        size += length
    outputs.append(_delivery(state, queue, worker, part))
    return outputs


def _size_of(job: GrantedJob) -> int:
    """Return how many bytes a job has in a grant, at most."""
    name = job["fairness_key"]
    named = len(name) if name.isascii() else 4 * len(name)
    return len(job["body"]) + named + _JOB_OVERHEAD_BYTES


def _delivery(state: State, queue: Queue, worker: RowWorker, jobs: list[GrantedJob]) -> Output:
    value: JobsGranted = {
        "consumer_id": worker["consumer_id"],
        "incarnation": worker["incarnation"],
        "queue": queue.home,
        "granted_at_ms": state.now_ms,
        "claim_ttl_ms": worker["claim_ttl_ms"],
        "gates_digest": queue.gates.digest,
        "jobs": jobs,
    }
    partition = worker["deliveries_partition"]
    return Output(DELIVERIES, "jobs_granted", worker["consumer_id"], value, partition=partition)


def jobs_waiting(state: State, book: Book, worker: RowWorker, /) -> list[Output]:
    """Tell a worker that divides its room that jobs wait here for which it has none."""
    weight = 0 if book.free(worker) > 0 or worker["draining"] else _weight(book, worker)
    if not weight:
        return []
    value: JobsWaiting = {
        "consumer_id": worker["consumer_id"],
        "incarnation": worker["incarnation"],
        "partition": state.partition,
        "weight": weight,
    }
    partition, key = worker["deliveries_partition"], worker["consumer_id"]
    return [Output(DELIVERIES, "jobs_waiting", key, value, partition=partition)]


def _weight(book: Book, worker: RowWorker) -> int:
    """Return what the keys weigh that have a job which the worker could claim."""
    return sum(book.queue(home).selection.weight for home in worker["queues"])


def nothing_ready(state: State, book: Book, worker: RowWorker, /) -> list[Output]:
    """Tell a worker that takes what there is that a queue has no more for it."""
    if worker["draining"] or worker["answered_seq"] >= worker["seq"]:
        return []
    if book.free(worker) <= 0 and _weight(book, worker):
        return []  # there is more than it has room for
    answered: RowWorker = {**worker, "answered_seq": worker["seq"]}
    book.workers[worker["consumer_id"]] = answered
    state.rows.put(f"w:{worker['consumer_id']}", answered)
    outputs: list[Output] = []
    for home in worker["queues"]:
        value: NothingReady = {
            "consumer_id": worker["consumer_id"],
            "incarnation": worker["incarnation"],
            "queue": home,
            "seq": worker["seq"],
        }
        partition, key = worker["deliveries_partition"], worker["consumer_id"]
        outputs.append(Output(DELIVERIES, "nothing_ready", key, value, partition=partition))
    return outputs
