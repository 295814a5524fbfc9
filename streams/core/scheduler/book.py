"""What the scheduler knows of one partition, derived from its rows and written back to them.

    q: queues    f: fairness keys      j: jobs         l: claims by holder
    w: workers   g: gates of a queue   a: gated jobs   n: returned jobs

A fold changes the book and marks what it has changed; `flush` then writes those rows, once a
record.  Claims of a worker on a queue are one row, so that a claim costs no row of its own; a job's
row is written when it becomes ready and never again.

Invariants: `load` of the rows that `flush` wrote makes a book that decides alike; rows are written
in an order that follows from the rows alone, since the hash chain knows it.

Source: DESIGN laws 6, 7, "State".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from streams.core import scheduler_policy
from streams.core.revision import last_revision, policy_in_force
from streams.core.scheduler.gate_book import GateBook
from streams.core.scheduler.job_id import place_by_id
from streams.core.scheduler.key import Key
from streams.core.scheduler.policy import RANKS, fairness_key
from streams.core.scheduler.returned import Returned, is_delayed
from streams.core.scheduler.selection import Selection
from streams.core.state import State
from streams.core.wire import (
    HeldClaim,
    RowFairnessKey,
    RowHolder,
    RowJob,
    RowQueue,
    RowWorker,
    SchedulerPolicy,
)
from streams.core.worker_queue import topic_of

KEY_IDLE_MS = 3_600_000
"""A fairness key without work keeps its credit and counts for an hour."""

SUMMARY_EVERY_MS = 1_000
SUMMARY_KEYS_PER_MS = 5
"""A queue of many fairness keys publishes less often: a summary looks at each of them."""

_SHARD = re.compile(r"[0-9]{1,9}")

_Held = dict[str, HeldClaim]


class Claim(NamedTuple):
    """A claim in force."""

    job: str
    place: int
    rank: int
    key: Key
    fence: int
    delivery: int
    expires_at_ms: int
    consumer_id: str


@dataclass(slots=True)
class Queue:
    """A queue, or a shard of one."""

    home: str
    queue: str
    claims_topic: str
    selection: Selection
    shard: int | None = None
    shards: int = 1
    known: bool = False
    """Whether it has ever had a job: only then it has a row."""
    relayed: dict[int, int] = field(default_factory=dict[int, int])
    held: dict[str, Claim] = field(default_factory=dict[str, Claim])
    holders: dict[str, _Held] = field(default_factory=dict[str, _Held])
    """Claims in force by worker and job, in the order of their granting, as the rows have them."""
    returned: Returned = field(default_factory=Returned)
    gates: GateBook = field(default_factory=GateBook)
    workers: set[str] = field(default_factory=set[str])
    acked: int = 0
    purged: int = 0
    dead: int = 0
    forgotten: tuple[int, int, int] = (0, 0, 0)
    summary_at_ms: int = 0
    summary_due_ms: int | None = None
    touched: set[str] = field(default_factory=set[str])
    """Holders whose claims have changed."""

    @property
    def waiting(self) -> int:
        """Jobs that nobody holds."""
        return self.selection.ready + self.delayed

    @property
    def delayed(self) -> int:
        """Jobs that nobody holds and nobody may claim yet."""
        return self.returned.delayed

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to be known of it: a job ever, a worker, or gates."""
        gates = self.gates
        return self.known or bool(self.workers) or bool(gates.digest) or bool(gates.flows)


@dataclass(slots=True)
class Book:
    """Queues and workers of one partition."""

    policy: SchedulerPolicy
    revision: int
    queues: dict[str, Queue] = field(default_factory=dict[str, Queue])
    workers: dict[str, RowWorker] = field(default_factory=dict[str, RowWorker])
    holding: dict[str, int] = field(default_factory=dict[str, int])
    """Claims that each worker holds in this partition."""
    dirty: dict[str, Queue] = field(default_factory=dict[str, Queue])
    doubtful: list[str] = field(default_factory=list[str])
    """Queues that are new, or that a worker has left: nobody may need them."""

    def queue(self, home: str, /) -> Queue:
        """Return a queue by the key under which it lives here; a new one where it is unknown."""
        found = self.queues.get(home)
        if found is None:
            name, _, shard = home.partition("#")
            found = Queue(
                home,
                name,
                f"{topic_of(name)}.claims",
                Selection(self.policy),
                shard=int(shard) if _SHARD.fullmatch(shard) else None,
            )
            self.queues[home] = found
            self.doubtful.append(home)
        return found

    def free(self, worker: RowWorker, /) -> int:
        """How many more claims a worker may have."""
        if worker["draining"]:
            return 0
        return worker["slots"] - self.holding.get(worker["consumer_id"], 0)

    def hold(self, queue: Queue, claim: Claim, /) -> None:
        """A claim is in force."""
        queue.held[claim.job] = claim
        queue.holders.setdefault(claim.consumer_id, {})[claim.job] = _held_claim(claim)
        self.holding[claim.consumer_id] = self.holding.get(claim.consumer_id, 0) + 1
        queue.touched.add(claim.consumer_id)
        self.dirty[queue.home] = queue

    def prolong(self, queue: Queue, claim: Claim, expires_at_ms: int, /) -> None:
        """A claim in force lasts until then."""
        renewed = claim._replace(expires_at_ms=expires_at_ms)
        queue.held[claim.job] = renewed
        queue.holders[claim.consumer_id][claim.job] = _held_claim(renewed)
        queue.touched.add(claim.consumer_id)
        self.dirty[queue.home] = queue

    def let_go(self, queue: Queue, claim: Claim, /) -> None:
        """A claim is in force no more."""
        consumer_id = claim.consumer_id
        del queue.held[claim.job], queue.holders[consumer_id][claim.job]
        if not queue.holders[consumer_id]:
            del queue.holders[consumer_id]
        self.holding[consumer_id] -= 1
        if not self.holding[consumer_id]:
            del self.holding[consumer_id]
        queue.selection.claimed(claim.key, -1)
        queue.selection.dirty.add(claim.key.name)
        queue.touched.add(consumer_id)
        self.dirty[queue.home] = queue

    def subscribe(self, worker: RowWorker, /) -> None:
        """A worker takes jobs of its queues."""
        self.workers[worker["consumer_id"]] = worker
        for home in worker["queues"]:
            self.queue(home).workers.add(worker["consumer_id"])

    def unsubscribe(self, consumer_id: str, /) -> None:
        """A worker takes no more jobs."""
        for home in self.workers.pop(consumer_id)["queues"]:
            self.queue(home).workers.discard(consumer_id)
            self.doubtful.append(home)

    # ------------------------------------------------------------------ rows
    def flush(self, state: State, /) -> None:
        """Write what has changed of the queues; forget those that are only a name."""
        for home in sorted(self.dirty):
            _flush(state, self.dirty[home])
        self.dirty.clear()
        # Whatever names are said in words about claims, and by workers that are gone, none stays.
        for home in self.doubtful:
            queue = self.queues.get(home)
            if queue is not None and not queue.is_needed:
                del self.queues[home]
        self.doubtful.clear()


def _flush(state: State, queue: Queue) -> None:
    rows, home, selection = state.rows, queue.home, queue.selection
    dimension = selection.policy["fairness_key"]
    # By name: the order of a set differs from process to process.
    for name in sorted(selection.dirty):
        key = selection.keys[name]
        rows.put(f"f:{home}:{dimension}:{name}", key_row(key, dimension, state.now_ms))
    selection.dirty.clear()
    for consumer_id in sorted(queue.touched):
        claims = queue.holders.get(consumer_id)
        if claims:
            rows.put(f"l:{home}:{consumer_id}", _holder_row(consumer_id, claims))
        else:
            rows.delete(f"l:{home}:{consumer_id}")
    queue.touched.clear()
    if queue.summary_due_ms is None:
        after_ms = max(SUMMARY_EVERY_MS, len(selection.keys) // SUMMARY_KEYS_PER_MS)
        queue.summary_due_ms = max(state.now_ms, queue.summary_at_ms) + after_ms
    rows.put(f"q:{home}", queue_row(queue))


def key_row(key: Key, dimension: str, now_ms: int, /) -> RowFairnessKey:
    """Return the row of a key; without work it is forgotten after a while."""
    idle = not key.ready and not key.in_flight
    return {
        "fairness_key": key.name,
        "dimension": dimension,
        "credit": key.credit,
        "round": key.round,
        "selected": key.selected,
        "deferred": key.deferred,
        "promotions": key.promotions,
        "served_at_ms": key.served_at_ms,
        "capped_at": key.capped_at,
        "forget_at_ms": now_ms + KEY_IDLE_MS if idle else None,
    }


def _held_claim(claim: Claim) -> HeldClaim:
    return {
        "job_event_id": claim.job,
        "fence": claim.fence,
        "delivery": claim.delivery,
        "expires_at_ms": claim.expires_at_ms,
    }


def _holder_row(consumer_id: str, claims: _Held) -> RowHolder:
    # Written after every record that touches one of a worker's many claims: nothing is made anew.
    return {
        "consumer_id": consumer_id,
        "claims": list(claims.values()),
        "due_ms": min([each["expires_at_ms"] for each in claims.values()]),
    }


def queue_row(queue: Queue, /) -> RowQueue:
    """Return the row of a queue."""
    selection = queue.selection
    return {
        "queue": queue.queue,
        "shard": queue.shard,
        "shards": queue.shards,
        "relayed": [
            {"source_partition": partition, "next_offset": offset}
            for partition, offset in sorted(queue.relayed.items())
        ],
        "rounds": selection.rounds,
        "selects": selection.selects,
        "last_selected": selection.last_selected,
        "selected": selection.selected,
        "promotions": selection.promotions,
        "acked": queue.acked,
        "purged": queue.purged,
        "dead": queue.dead,
        "forgotten_selected": queue.forgotten[0],
        "forgotten_deferred": queue.forgotten[1],
        "forgotten_promotions": queue.forgotten[2],
        "summary_due_ms": queue.summary_due_ms,
        "summary_at_ms": queue.summary_at_ms,
    }


# ---------------------------------------------------------------------- load
def load(state: State, /) -> Book:
    """Derive the book from the rows; O(rows)."""
    policy = policy_in_force(state)["scheduler"] or scheduler_policy.DEFAULT
    book = Book(policy, last_revision(state))
    for key, row in state.rows.scan("q:"):
        _load_queue(book.queue(key[2:]), row)
    for key, row in state.rows.scan("f:"):
        home = key[2:].partition(":")[0]
        if row["dimension"] == policy["fairness_key"]:
            _load_key(book.queue(home).selection.key(row["fairness_key"]), row)
    for _, row in state.rows.scan("w:"):
        book.subscribe(row)
    _load_jobs(state, book)
    for queue in book.queues.values():
        for key in queue.selection.keys.values():
            key.order()
        queue.selection.rebuild()
        queue.selection.dirty.clear()
        queue.touched.clear()
    _restore_order(state, book)
    book.dirty.clear()
    book.doubtful.clear()
    return book


def _load_jobs(state: State, book: Book) -> None:
    claims: dict[tuple[str, str], tuple[str, int, int, int]] = {}
    for key, row in state.rows.scan("l:"):
        home = key[2:].partition(":")[0]
        for claim in row["claims"]:
            said = (claim["fence"], claim["delivery"], claim["expires_at_ms"])
            claims[home, claim["job_event_id"]] = (row["consumer_id"], *said)
    for key, row in state.rows.scan("n:"):
        home, _, job = key[2:].partition(":")
        book.queue(home).returned[job] = row
    for key, row in state.rows.scan("g:"):
        book.queue(key[2:]).gates.adopt(row)
    for key, row in state.rows.scan("a:"):
        home, _, job = key[2:].partition(":")
        queue = book.queue(home)
        queue.gates.enter(job, row, queue.returned.get(job))
    for key, row in state.rows.each("j:"):
        home, _, job = key[2:].partition(":")
        _load_job(book, book.queue(home), job, row, claims.get((home, job)))


def _restore_order(state: State, book: Book) -> None:
    for key, row in state.rows.scan("l:"):
        queue = book.queue(key[2:].partition(":")[0])
        held = queue.holders[row["consumer_id"]]
        jobs = [each["job_event_id"] for each in row["claims"]]
        queue.holders[row["consumer_id"]] = {job: held[job] for job in jobs}


def _load_queue(queue: Queue, row: RowQueue) -> None:
    queue.known = True
    queue.shard, queue.shards = row["shard"], row["shards"]
    queue.relayed = {each["source_partition"]: each["next_offset"] for each in row["relayed"]}
    queue.acked, queue.purged, queue.dead = row["acked"], row["purged"], row["dead"]
    queue.forgotten = (
        row["forgotten_selected"],
        row["forgotten_deferred"],
        row["forgotten_promotions"],
    )
    queue.summary_at_ms, queue.summary_due_ms = row["summary_at_ms"], row["summary_due_ms"]
    selection = queue.selection
    selection.rounds, selection.selects = row["rounds"], row["selects"]
    selection.last_selected, selection.selected = row["last_selected"], row["selected"]
    selection.promotions = row["promotions"]


def _load_key(key: Key, row: RowFairnessKey) -> None:
    key.credit, key.round = row["credit"], row["round"]
    key.selected, key.deferred = row["selected"], row["deferred"]
    key.promotions, key.served_at_ms = row["promotions"], row["served_at_ms"]
    key.capped_at = row["capped_at"]


def _load_job(
    book: Book, queue: Queue, job: str, row: RowJob, held: tuple[str, int, int, int] | None
) -> None:
    key = queue.selection.key(fairness_key(book.policy["fairness_key"], row))
    place, rank = place_by_id(row["occurred_at_ms"], job), RANKS[row["priority"]]
    if held is not None:
        consumer_id, fence, delivery, expires_at_ms = held
        claim = Claim(job, place, rank, key, fence, delivery, expires_at_ms, consumer_id)
        key.in_flight += 1
        book.hold(queue, claim)
        return
    returned = queue.returned.get(job)
    if returned is None or not is_delayed(returned):
        key.load(place, rank)
