"""Workers: who takes jobs, how many, and which claims they still have.

| heartbeat | answer |
|---|---|
| no newer than the last | none |
| of an incarnation that was replaced | `worker_replaced`, unless it is about to leave |
| of a new incarnation | the claims of the one before are released |
| leaves a claim out, as the one before did | it is released: the grant never reached the worker |
| drains | it is given nothing more; what it gave back and was kept from it is ready again |

Source: DESIGN "A job".
"""

from __future__ import annotations

from typing import Final

from streams.core.record import Output
from streams.core.scheduler import requests
from streams.core.scheduler.book import Book
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
        "due_ms": state.now_ms + book.policy["worker_ttl_ms"],
    }
    book.subscribe(row)
    absent = _reconcile(state, book, row, listed, missing, outputs, restarted=restarted)
    has = book.holding.get(consumer_id, 0) - len(absent)
    row = {**row, "slots": min(max(beat["capacity"] + has, 0), HELD_MAX), "missing": absent}
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


def _reconcile(
    state: State,
    book: Book,
    row: RowWorker,
    listed: set[str],
    missing: frozenset[str],
    outputs: list[Output],
    *,
    restarted: bool,
) -> list[str]:
    """Release what the worker does not have; return what it leaves out for the first time."""
    absent: list[str] = []
    for home in sorted(book.queues):
        queue = book.queues[home]
        for job in tuple(queue.holders.get(row["consumer_id"], ())):
            claim = queue.held[job]
            name = f"{home}:{claim_id(claim.job, claim.fence)}"
            if restarted:
                outputs += requests.release(state, book, queue, claim, RESTARTED, counts=True)
            elif name in missing and name not in listed:
                outputs += requests.release(state, book, queue, claim, UNLISTED, counts=True)
            elif name not in listed:
                absent.append(name)
    return absent


def gone(state: State, book: Book, consumer_id: str, /) -> None:
    """A worker is silent: it is given nothing more; its claims last until they expire."""
    book.unsubscribe(consumer_id)
    state.rows.delete(f"w:{consumer_id}")
    unpark(state, book, consumer_id)
