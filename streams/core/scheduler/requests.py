"""What workers and operators ask for about claims: renew, ack, release, purge; and expiry.

A word about a claim counts if the claim is in force, or has merely expired and no later one has
been given.  Every other word is refused, on record.

Source: SEMANTICS 5.2-5.5; DESIGN law 7, decision "5-09, 5-13".
"""

from __future__ import annotations

from typing import Final

from streams.core.record import Output
from streams.core.scheduler import gates, jobs
from streams.core.scheduler.book import Book, Claim, Queue
from streams.core.scheduler.endings import done, headers_of, row_of
from streams.core.scheduler.grants import DELIVERIES
from streams.core.scheduler.job_id import claim_id, id_at
from streams.core.scheduler.unclaimed import forget_returned, key_of_job, take_returned
from streams.core.state import State
from streams.core.wire import (
    AckRequested,
    ClaimExpired,
    ClaimRefused,
    ClaimRenewed,
    ClaimRequest,
    JobPurged,
    JobReleased,
    PurgeAnswered,
    PurgeRequested,
    RefusalReason,
    ReleaseRequested,
    RenewRequested,
    RowWorker,
)

PURGE_MAX: Final = 20_000
"""Jobs that one request removes, at most; who wants more asks again."""

CLAIM_TTL_MS_MIN, CLAIM_TTL_MS_MAX = 100, 86_400_000


def on_ack(state: State, book: Book, ask: AckRequested, /) -> list[Output]:
    """End jobs that are done."""
    queue, consumer_id = book.queue(ask["queue"]), ask["consumer_id"]
    outputs: list[Output] = []
    for named in ask["acks"]:
        job, named_claim = named["job_event_id"], named["claim_id"]
        claim = in_force(queue, job, named_claim, consumer_id)
        if claim is not None:
            book.let_go(queue, claim)
            row = row_of(state, queue, job)
        elif _is_open(queue, job, named_claim, consumer_id):
            row, claim = take_returned(state, book, queue, job)
        else:
            outputs.append(refused(state, queue, job, named_claim, consumer_id, "ack"))
            continue
        gates.forget(state, book, queue, job)
        outputs.append(done(state, queue, claim, row))
    return outputs


def on_renew(state: State, book: Book, ask: RenewRequested, /) -> list[Output]:
    """Make claims last longer; one that has merely expired comes back into force."""
    consumer_id = ask["consumer_id"]
    expires_at_ms = state.now_ms + bounded_ttl(ask["claim_ttl_ms"])
    outputs: list[Output] = []
    for named in ask["claims"]:
        queue, job, named_claim = (
            book.queue(named["queue"]),
            named["job_event_id"],
            named["claim_id"],
        )
        if not queue.known:
            continue  # no topic to say it on
        claim = in_force(queue, job, named_claim, consumer_id)
        if claim is not None:
            book.prolong(queue, claim, expires_at_ms)
        elif _is_open(queue, job, named_claim, consumer_id) and _may_go_on(state, book, queue, job):
            _, claim = take_returned(state, book, queue, job)
            book.hold(queue, claim._replace(expires_at_ms=expires_at_ms))
            queue.selection.claimed(claim.key, 1)
        else:
            outputs.append(refused(state, queue, job, named_claim, consumer_id, "renew"))
            continue
        value: ClaimRenewed = {
            "queue": queue.queue,
            "job_event_id": job,
            "claim_id": named_claim,
            "consumer_id": consumer_id,
            "fence": claim.fence,
            "renewed_at_ms": state.now_ms,
            "expires_at_ms": expires_at_ms,
        }
        outputs.append(Output(queue.claims_topic, "claim_renewed", job, value))
    return outputs


def on_release(state: State, book: Book, ask: ReleaseRequested, /) -> list[Output]:
    """Take jobs back that their worker has not run; the delivery does not count."""
    queue, consumer_id = book.queue(ask["queue"]), ask["consumer_id"]
    outputs: list[Output] = []
    for named in ask["claims"]:
        job, named_claim = named["job_event_id"], named["claim_id"]
        claim = in_force(queue, job, named_claim, consumer_id)
        if claim is None:
            outputs.append(refused(state, queue, job, named_claim, consumer_id, "release"))
            continue
        reason = (ask["reason"] or "").strip() or None
        outputs += release(state, book, queue, claim, reason, counts=False)
    return outputs


def release(
    state: State, book: Book, queue: Queue, claim: Claim, reason: str | None, /, *, counts: bool
) -> list[Output]:
    """End a claim before it expires; `counts` says whether the job counts as delivered by it."""
    value: JobReleased = {
        "queue": queue.queue,
        "job_event_id": claim.job,
        "claim_id": claim_id(claim.job, claim.fence),
        "consumer_id": claim.consumer_id,
        "fence": claim.fence,
        "reason": reason,
        "not_before_ms": None,
        "released_at_ms": state.now_ms,
    }
    headers = headers_of(row_of(state, queue, claim.job))
    said = Output(queue.claims_topic, "job_released", claim.job, value, headers=headers)
    deliveries = claim.delivery if counts else claim.delivery - 1
    return [
        said,
        *jobs.give_back(state, book, queue, claim, deliveries=deliveries, expired=False),
    ]


def expire(state: State, book: Book, queue: Queue, consumer_id: str, /) -> list[Output]:
    """End the claims of a holder that have run out.

    They leave it no room: a job that failed has its place no more, and one that runs on keeps it.
    One that was still on its way to the holder, as far as the log says, was no delivery.
    """
    outputs: list[Output] = []
    held_before = book.holding.get(consumer_id, 0)
    known = book.workers.get(consumer_id)
    coming = frozenset[str]() if known is None else frozenset(known["coming"])
    for job in tuple(queue.holders.get(consumer_id, ())):
        claim = queue.held[job]
        if claim.expires_at_ms > state.now_ms:
            continue
        value: ClaimExpired = {
            "queue": queue.queue,
            "job_event_id": claim.job,
            "claim_id": claim_id(claim.job, claim.fence),
            "consumer_id": consumer_id,
            "fence": claim.fence,
            "expired_at_ms": state.now_ms,
        }
        headers = headers_of(row_of(state, queue, claim.job))
        outputs.append(
            Output(queue.claims_topic, "claim_expired", claim.job, value, headers=headers)
        )
        has_come = f"{queue.home}:{value['claim_id']}" not in coming
        deliveries = claim.delivery if has_come else claim.delivery - 1
        outputs += jobs.give_back(state, book, queue, claim, deliveries=deliveries, expired=True)
    worker = book.workers.get(consumer_id)
    if worker is not None:
        ended = held_before - book.holding.get(consumer_id, 0)
        fewer: RowWorker = {**worker, "slots": max(0, worker["slots"] - ended)}
        book.workers[consumer_id] = fewer
        state.rows.put(f"w:{consumer_id}", fewer)
    return outputs


def on_purge(state: State, book: Book, ask: PurgeRequested, /) -> list[Output]:
    """Remove jobs that nobody has, by key and age, and answer how many."""
    queue = book.queue(ask["queue"])
    outputs: list[Output] = []
    for name in sorted(queue.selection.keys):
        key = queue.selection.keys[name]
        room = PURGE_MAX - len(outputs)
        if not key.ready or room <= 0:
            continue
        taken = queue.selection.take(key, room)
        outputs += [_purged(state, queue, id_at(place), ask) for place in taken]
    # What waits at a gate, or for a drain to end, is nobody's, too.
    for job in queue.returned.delayed_jobs()[: PURGE_MAX - len(outputs)]:
        take_returned(state, book, queue, job)
        outputs.append(_purged(state, queue, job, ask))
    gates.forget(state, book, queue, *(said.key for said in outputs))
    if outputs:
        queue.purged += len(outputs)
        book.dirty[queue.home] = queue
    if ask["deliveries_partition"] is not None:
        answer: PurgeAnswered = {
            "queue": queue.home,
            "request_id": ask["request_id"],
            "purged": len(outputs),
            "purged_at_ms": state.now_ms,
        }
        partition = ask["deliveries_partition"]
        key_text = ask["request_id"]
        outputs.append(Output(DELIVERIES, "purge_answered", key_text, answer, partition=partition))
    return outputs


def _purged(state: State, queue: Queue, job: str, ask: PurgeRequested) -> Output:
    forget_returned(state, queue, job)
    state.rows.delete(f"j:{queue.home}:{job}")
    purged: JobPurged = {
        "queue": queue.queue,
        "job_event_id": job,
        "purged_by": ask["purged_by"],
        "reason": (ask["reason"] or "").strip() or None,
        "purged_at_ms": state.now_ms,
    }
    return Output(queue.claims_topic, "job_purged", job, purged)


def bounded_ttl(ttl_ms: int, /) -> int:
    """Return how long a claim lasts that was asked for so long."""
    return min(max(ttl_ms, CLAIM_TTL_MS_MIN), CLAIM_TTL_MS_MAX)


def in_force(queue: Queue, job: str, named: str, consumer_id: str, /) -> Claim | None:
    """Return the claim of a job if it is in force, and this worker's by this name."""
    claim = queue.held.get(job)
    if claim is None or claim.consumer_id != consumer_id or claim_id(job, claim.fence) != named:
        return None
    return claim


def _is_open(queue: Queue, job: str, named: str, consumer_id: str) -> bool:
    last = queue.returned.get(job)
    return (
        last is not None
        and last["open"]
        and last["consumer_id"] == consumer_id
        and claim_id(job, last["fence"]) == named
    )


def _may_go_on(state: State, book: Book, queue: Queue, job: str) -> bool:
    """Whether a claim that has run out may come back: its slot, or its key's, may be another's."""
    if not queue.gates.may_go_on(job):
        return False
    return not queue.selection.is_full(key_of_job(state, book, queue, job))


def refused(
    state: State, queue: Queue, job: str, named: str, consumer_id: str, request: ClaimRequest, /
) -> Output:
    """Refuse a word about a claim, on record."""
    claim = queue.held.get(job)
    current = None if claim is None else claim_id(job, claim.fence)
    reason: RefusalReason
    if claim is not None:
        reason = "other_holder" if current == named else "superseded"
    elif state.rows.get(f"j:{queue.home}:{job}") is not None:
        reason = "not_claimed"
    else:
        reason = "unknown_job"
    value: ClaimRefused = {
        "queue": queue.queue,
        "job_event_id": job,
        "claim_id": named,
        "consumer_id": consumer_id,
        "request": request,
        "reason": reason,
        "current_claim_id": current,
        "refused_at_ms": state.now_ms,
    }
    return Output(queue.claims_topic, "claim_refused", job, value)
