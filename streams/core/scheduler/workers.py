"""Workers: who takes jobs, how many, and which claims they still have.

| heartbeat | answer |
|---|---|
| no newer than the last | none |
| of an incarnation that was replaced | `worker_replaced`, unless it is about to leave |
| of a new incarnation | the claims of the one before are released |
| leaves a claim out, as the one before did, and a later grant has come to it | it is released: the grant never reached the worker |
| drains | it is given nothing more; what it gave back and was kept from it is ready again |

A heartbeat may be folded long after it was said: while nobody scheduled, or much was to be folded
before it.  What has been granted since then, as the log has it, cannot be in it, and is no loss.

Source: DESIGN "A job".
"""  # noqa: E501 - a table

from __future__ import annotations

from typing import Final

from streams.core.record import Output
from streams.core.scheduler import requests
from streams.core.scheduler.book import Book, Claim, Queue
from streams.core.scheduler.grants import DELIVERIES, HELD_MAX
from streams.core.scheduler.job_id import claim_id
from streams.core.scheduler.unclaimed import unpark
from streams.core.state import State
from streams.core.wire import RowWorker, WorkerHeartbeat, WorkerReplaced

RESTARTED: Final = "its worker has started anew"
UNLISTED: Final = "its worker does not have it"


def on_heartbeat(state: State, book: Book, beat: WorkerHeartbeat, /) -> list[Output]:
    """Take a worker's word about itself."""
    consumer_id, incarnation = beat["consumer_id"], beat["incarnation"]
    known = book.workers.get(consumer_id)
    if known is not None and beat["incarnation"] == known["superseded"]:
        return [] if beat["draining"] else [_replaced(beat)]
    if known is not None and _is_old(known, beat):
        return []
    outputs: list[Output] = []
    restarted = known is not None and known["incarnation"] != incarnation
    superseded, missing, answered_seq = "", frozenset[str](), 0
    if known is not None:
        book.unsubscribe(consumer_id)
        superseded = known["incarnation"] if restarted else known["superseded"]
        if not restarted:
            missing, answered_seq = frozenset(known["missing"]), known["answered_seq"]
    listed = {f"{each['queue']}:{each['claim_id']}" for each in beat["claims"]}
    row: RowWorker = {
        "consumer_id": consumer_id,
        "incarnation": incarnation,
        "deliveries_partition": beat["deliveries_partition"],
        "queues": sorted(set(beat["queues"])),
        "slots": 0,
        "claim_ttl_ms": requests.bounded_ttl(beat["claim_ttl_ms"]),
        "draining": beat["draining"],
        "once": beat["once"],
        "seq": beat["seq"],
        "answered_seq": answered_seq,
        "superseded": superseded,
        "missing": [],
        "coming": [],
        "due_ms": state.now_ms + book.policy["worker_ttl_ms"],
    }
    book.subscribe(row)
    if restarted:
        outputs += _release_all(state, book, consumer_id)
    unlisted = _unlisted(book, consumer_id, listed)
    absent = [name for name, claim in unlisted.items() if _has_come(claim, row, beat)]
    for name in absent:
        if name in missing:
            queue = book.queue(name.partition(":")[0])
            claim = unlisted.pop(name)
            outputs += requests.release(state, book, queue, claim, UNLISTED, counts=True)
    has = book.holding.get(consumer_id, 0) - len(unlisted)
    row = {
        **row,
        "slots": min(max(beat["capacity"] + has, 0), HELD_MAX),
        "missing": [name for name in absent if name in unlisted],
        "coming": sorted(unlisted.keys() - absent),
    }
    book.workers[consumer_id] = row
    state.rows.put(f"w:{consumer_id}", row)
    if restarted or row["draining"]:
        unpark(state, book, consumer_id)
    return outputs


def _is_old(known: RowWorker, beat: WorkerHeartbeat) -> bool:
    """Whether a later word of the worker has come before this one."""
    return beat["incarnation"] == known["incarnation"] and beat["seq"] <= known["seq"]


def _replaced(beat: WorkerHeartbeat) -> Output:
    value: WorkerReplaced = {
        "consumer_id": beat["consumer_id"],
        "incarnation": beat["incarnation"],
    }
    partition, key = beat["deliveries_partition"], beat["consumer_id"]
    return Output(DELIVERIES, "worker_replaced", key, value, partition=partition)


def _release_all(state: State, book: Book, consumer_id: str) -> list[Output]:
    """Release what the incarnation before had."""
    outputs: list[Output] = []
    for _, queue, claim in _claims_of(book, consumer_id):
        outputs += requests.release(state, book, queue, claim, RESTARTED, counts=True)
    return outputs


def _unlisted(book: Book, consumer_id: str, listed: set[str]) -> dict[str, Claim]:
    """Return the claims that the worker does not list, by `<queue>:<claim id>`."""
    found = _claims_of(book, consumer_id)
    return {name: claim for name, _, claim in found if name not in listed}


def _claims_of(book: Book, consumer_id: str) -> list[tuple[str, Queue, Claim]]:
    return [
        (f"{home}:{claim_id(job, queue.held[job].fence)}", queue, queue.held[job])
        for home, queue in sorted(book.queues.items())
        for job in queue.holders.get(consumer_id, ())
    ]


def _has_come(claim: Claim, row: RowWorker, beat: WorkerHeartbeat) -> bool:
    """Whether the worker had been told of a claim, or of a later one, when it said this."""
    newest_ms = beat["granted_at_ms"]
    return newest_ms is None or claim.expires_at_ms - row["claim_ttl_ms"] <= newest_ms


def gone(state: State, book: Book, consumer_id: str, /) -> None:
    """A worker is silent: it is given nothing more; its claims last until they expire."""
    book.unsubscribe(consumer_id)
    state.rows.delete(f"w:{consumer_id}")
    unpark(state, book, consumer_id)
