"""What workers ask about gates: may the jobs start that they have claimed.

    gates_requested → admitted: `job_admitted`   delayed: `job_released`   skipped: `job_acked`
                    → `gates_answered`, to the worker

The worker has the consumer manifest, and the event: so it finds the keys, and the scheduler decodes
no body.  Limits are those that a worker has registered for the queue.

Source: decision 18; SEMANTICS 3, 5.
"""

from __future__ import annotations

from typing import Final

from streams.core import bounds
from streams.core.expression import KEY_CHARS_MAX
from streams.core.flow import GATES
from streams.core.record import Output, Record, Rejection
from streams.core.scheduler import gates
from streams.core.scheduler.book import Book, Claim, Queue
from streams.core.scheduler.endings import headers_of, row_of
from streams.core.scheduler.gate_book import gates_problem
from streams.core.scheduler.grants import DELIVERIES
from streams.core.scheduler.job_id import claim_id
from streams.core.scheduler.requests import in_force, refused
from streams.core.scheduler.unclaimed import store_returned
from streams.core.state import Answer, State
from streams.core.wire import (
    ConsumerRegistered,
    GateAnswer,
    GatedJob,
    GatesAnswered,
    GatesRequested,
    GateVerdict,
    JobReleased,
    RowConsumer,
    RowGated,
)

ASKED_MAX: Final = 4_096
"""Jobs of one request: a job's place in the order of asking is its place in the log, and in it."""

KEYS_MAX: Final = len(GATES) + 1
"""Of a job: one for each gate, and the priority's."""


def on_registered(state: State, book: Book, word: ConsumerRegistered, /) -> Answer:
    """Take the gates of a queue's consumers: the last word stands."""
    home = word["queue"]
    for each in word["gates"]:
        problem = gates_problem(each["definition"])
        if problem is not None:
            return Rejection("SCH-005", f"gates of trigger {each['trigger_id'][:80]!r}: {problem}")
    key = f"g:{home}"
    known: RowConsumer | None = state.rows.get(key)
    if known is not None and known["digest"] == word["digest"]:
        return ()
    row: RowConsumer = {"digest": word["digest"], "gates": list(word["gates"])}
    state.rows.put(key, row)
    queue = book.queue(home)
    queue.gates.adopt(row)
    gates.registered(state, book, queue)
    return ()


def problem_of(ask: GatesRequested, /) -> str | None:
    """Return what makes a request unusable, or None."""
    if len(ask["jobs"]) > ASKED_MAX:
        return f"{len(ask['jobs'])} jobs, expected at most {ASKED_MAX}"
    for job in ask["jobs"]:
        if len(job["keys"]) > KEYS_MAX:
            return f"{len(job['keys'])} keys of a job, expected at most {KEYS_MAX}"
        problem = bounds.text_problem(
            (
                ("trigger_id", job["trigger_id"], bounds.ID_CHARS_MAX),
                ("dispatch_id", job["dispatch_id"], bounds.ID_CHARS_MAX),
                *(("keys", name, bounds.ID_CHARS_MAX) for name in job["keys"]),
                *((f"keys.{name}", text, KEY_CHARS_MAX) for name, text in job["keys"].items()),
            )
        )
        if problem is not None:
            return problem
    return None


def on_asked(state: State, book: Book, record: Record, /) -> list[Output]:
    """Put claimed jobs before the gates of their triggers, in the order of the request."""
    ask: GatesRequested = record.value
    queue, consumer_id = book.queue(ask["queue"]), ask["consumer_id"]
    outputs: list[Output] = []
    answers: list[GateAnswer] = []
    for number, asked in enumerate(ask["jobs"]):
        job, named = asked["job_event_id"], asked["claim_id"]
        claim = in_force(queue, job, named, consumer_id)
        verdict: GateVerdict = "lost"
        if claim is None:
            outputs.append(refused(state, queue, job, named, consumer_id, "gates"))
        else:
            arrival = record.offset * ASKED_MAX + number
            verdict = _ask(state, book, queue, claim, asked, arrival, outputs)
        answers.append({"claim_id": named, "answer": verdict})
    worker = book.workers.get(consumer_id)
    if worker is not None:
        value: GatesAnswered = {
            "consumer_id": consumer_id,
            "incarnation": ask["incarnation"],
            "queue": queue.home,
            "answers": answers,
        }
        partition = worker["deliveries_partition"]
        outputs.append(
            Output(DELIVERIES, "gates_answered", consumer_id, value, partition=partition)
        )
    return outputs


def _ask(
    state: State,
    book: Book,
    queue: Queue,
    claim: Claim,
    asked: GatedJob,
    arrival: int,
    outputs: list[Output],
) -> GateVerdict:
    job = claim.job
    if job in queue.gates.jobs:
        return "admitted"  # asked for twice: what has a claim has passed
    flow = queue.gates.flows.get(asked["trigger_id"])
    if flow is None or not flow.declared:
        return "admitted"
    row: RowGated = {
        "trigger_id": asked["trigger_id"],
        "dispatch_id": asked["dispatch_id"],
        "keys": asked["keys"],
        "rank": flow.rank(asked["keys"]),
        "arrival": arrival,
        "since_ms": state.now_ms,
        "gate": None,
        "again": False,
        "passed": [],
    }
    met = gates.meet(state, book, queue, job, row)
    outputs += met.outputs
    if met.skip or met.full:
        book.let_go(queue, claim)
        if met.full:
            outputs.append(_released(state, queue, claim, met))
        outputs += gates.end(state, book, queue, claim, met)
        return "skipped" if met.skip else "lost"
    if not met.waits:
        outputs.append(gates.admitted(state, queue, claim, row_of(state, queue, job)))
        return "admitted"
    book.let_go(queue, claim)
    outputs.append(_released(state, queue, claim, met))
    _store(state, book, queue, claim, met)
    return "delayed"


def _store(state: State, book: Book, queue: Queue, claim: Claim, met: gates.Met) -> None:
    """Remember a job that waits at a gate; it does not count as delivered."""
    worker = book.workers.get(claim.consumer_id)
    returned = gates.waiting(
        {
            "fence": claim.fence,
            "deliveries": claim.delivery - 1,
            "consumer_id": claim.consumer_id,
            "incarnation": "" if worker is None else worker["incarnation"],
            "open": False,
            "parked": False,
            "not_before_ms": None,
            "gated": False,
        },
        met,
    )
    store_returned(state, queue, claim.job, returned)


def _released(state: State, queue: Queue, claim: Claim, met: gates.Met) -> Output:
    why = "is full" if met.full else "lets it wait"
    value: JobReleased = {
        "queue": queue.queue,
        "job_event_id": claim.job,
        "claim_id": claim_id(claim.job, claim.fence),
        "consumer_id": claim.consumer_id,
        "fence": claim.fence,
        "reason": f"the gate {met.row['gate']} {why}",
        "not_before_ms": met.due_ms,
        "released_at_ms": state.now_ms,
    }
    headers = headers_of(row_of(state, queue, claim.job))
    return Output(queue.claims_topic, "job_released", claim.job, value, headers=headers)
