"""The scheduler of worker queues: jobs that are ready meet workers that have room.

| kind | answer |
|---|---|
| `jobs_ready` | rows; grants |
| `job_rejected` | `record_quarantined`, once |
| `worker_heartbeat` | releases; grants; `nothing_ready` for who takes what there is, `jobs_waiting` for who divides its room, `worker_replaced` for who was |
| `ack_requested`, `renew_requested`, `release_requested` | per claim, or `claim_refused`; grants |
| `gates_requested` | per job: admitted, released or acked; `gates_answered`; grants |
| `consumer_registered` | the gates in force; grants of what they let go on |
| `purge_requested` | `job_purged` each, `purge_answered` |
| `summary_requested` | `queue_summary` |
| `revision_published`, the next | the policy in force; credit and counts stay |
| timers | expiry, summaries, workers and keys that are forgotten |

Invariants: a job has one claim at a time, and each one a greater fence; while a worker has room and
an eligible job waits in one of its queues, the same record grants it; `max_concurrent_per_key`
holds at every position.

Source: SEMANTICS 5, 6; DESIGN "A job", laws 6-9.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streams.core import bounds, revision, scheduler_policy
from streams.core.record import Output, Record, Rejection
from streams.core.scheduler import gate_asks, grants, jobs, requests, words, workers
from streams.core.scheduler.book import KEY_IDLE_MS, Book, key_row, load, queue_row
from streams.core.scheduler.summary import summary
from streams.core.scheduler.unclaimed import make_ready
from streams.core.state import Answer, Fold, State
from streams.core.wire import (
    ConsumerRegistered,
    PurgeRequested,
    RevisionPublished,
    SummaryRequested,
    WorkerHeartbeat,
)

HEARTBEAT_QUEUES_MAX = 1_000


def _home(value: Any) -> str:  # noqa: ANN401 - a record that names queue and shard
    queue, shard = value["queue"], value["shard"]
    return queue if shard is None else f"{queue}#{shard}"


def _on_jobs_ready(state: State, book: Book, record: Record) -> Answer:
    home = _home(record.value)
    outputs = jobs.on_jobs_ready(state, book, home, record.value)
    return [*outputs, *grants.deal(state, book, (home,))]


def _on_job_rejected(_state: State, book: Book, record: Record) -> Answer:
    return jobs.on_job_rejected(book, _home(record.value), record.value)


def _on_heartbeat(state: State, book: Book, record: Record) -> Answer:
    beat: WorkerHeartbeat = record.value
    problem = _heartbeat_problem(state, beat)
    if problem is not None:
        return Rejection("SCH-002", problem)
    outputs = workers.on_heartbeat(state, book, beat)
    worker = book.workers[beat["consumer_id"]]
    if worker["incarnation"] != beat["incarnation"]:
        return outputs  # it was replaced
    outputs += grants.deal(state, book, {*worker["queues"], *book.dirty})
    if worker["once"]:
        outputs += grants.nothing_ready(state, book, worker)
    if beat["divided"]:
        outputs += grants.jobs_waiting(state, book, worker)
    return outputs


def _heartbeat_problem(state: State, beat: WorkerHeartbeat) -> str | None:
    """Return what makes a heartbeat unusable, or None."""
    if not beat["consumer_id"].strip() or not beat["incarnation"]:
        return "a heartbeat without consumer_id or incarnation"
    if not 0 <= beat["deliveries_partition"] < state.partitions:
        at = beat["deliveries_partition"]
        return f"deliveries_partition is {at}, expected 0 to {state.partitions - 1}"
    if len(beat["queues"]) > HEARTBEAT_QUEUES_MAX:
        return f"{len(beat['queues'])} queues, expected at most {HEARTBEAT_QUEUES_MAX}"
    ids = (("consumer_id", beat["consumer_id"]), ("incarnation", beat["incarnation"]))
    texts = (*ids, *(("queues", home) for home in beat["queues"]))
    for name, text in texts:
        if not text or (":" in text and name == "queues"):
            return f"{name}: {text[:80]!r}, expected the name of a queue's topic"
    return bounds.text_problem((name, text, bounds.ID_CHARS_MAX) for name, text in texts)


def _on_ack(state: State, book: Book, record: Record) -> Answer:
    if not book.queue(record.value["queue"]).known:
        return _unknown(record)
    return _and_deal(state, book, record, requests.on_ack(state, book, record.value))


def _on_renew(state: State, book: Book, record: Record) -> Answer:
    return _and_deal(state, book, record, requests.on_renew(state, book, record.value))


def _unknown(record: Record) -> Rejection:
    """Refuse a word about claims of a queue that never had a job: nothing can be said of it."""
    return Rejection("SCH-004", f"queue {record.value['queue'][:80]!r} never had a job here")


def _on_release(state: State, book: Book, record: Record) -> Answer:
    if not book.queue(record.value["queue"]).known:
        return _unknown(record)
    return _and_deal(state, book, record, requests.on_release(state, book, record.value))


def _and_deal(state: State, book: Book, record: Record, outputs: list[Output]) -> list[Output]:
    """Grant what the record has made room for: in the queues that it is about, and its worker's."""
    worker = book.workers.get(record.value["consumer_id"])
    homes = {*book.dirty, *(() if worker is None else worker["queues"])}
    return [*outputs, *grants.deal(state, book, homes)]


def _on_purge(state: State, book: Book, record: Record) -> Answer:
    ask: PurgeRequested = record.value
    partition = ask["deliveries_partition"]
    if partition is not None and not 0 <= partition < state.partitions:
        problem = f"deliveries_partition is {partition}, expected 0 to {state.partitions - 1}"
        return Rejection("SCH-003", problem)
    return [*requests.on_purge(state, book, ask), *grants.deal(state, book, (ask["queue"],))]


def _on_summary(state: State, book: Book, record: Record) -> Answer:
    ask: SummaryRequested = record.value
    queue = book.queue(ask["queue"])
    said = summary(state, book, queue, record, ask["request_id"])
    if queue.known:
        state.rows.put(f"q:{queue.home}", queue_row(queue))
    return (said,)


def _on_consumer(state: State, book: Book, record: Record) -> Answer:
    word: ConsumerRegistered = record.value
    answer = gate_asks.on_registered(state, book, word)
    if isinstance(answer, Rejection):
        return answer
    return grants.deal(state, book, (word["queue"],))


def _on_gates(state: State, book: Book, record: Record) -> Answer:
    if not book.queue(record.value["queue"]).known:
        return _unknown(record)
    problem = gate_asks.problem_of(record.value)
    if problem is not None:
        return Rejection("SCH-006", problem)
    return _and_deal(state, book, record, gate_asks.on_asked(state, book, record))


def _on_revision(state: State, book: Book, record: Record) -> Answer:
    """Take the policy of the next revision; of its bindings the scheduler needs none."""
    published: RevisionPublished = record.value
    if not revision.advances(state, published, policy_only=True):
        return ()
    book.revision = published["revision"]
    policy = published["policy"]["scheduler"] or scheduler_policy.DEFAULT
    before, book.policy = book.policy, policy
    if policy == before:
        return ()
    for queue in book.queues.values():
        queue.selection.adopt(policy)
        if queue.known:
            book.dirty[queue.home] = queue
    if policy["fairness_key"] != before["fairness_key"]:
        _change_dimension(state, book, before["fairness_key"])
    return grants.deal(state, state.index, tuple(state.index.queues))


def _change_dimension(state: State, book: Book, before: str) -> None:
    """Let the keys of another dimension be forgotten; those of this one begin anew."""
    for _, queue in sorted(book.queues.items()):
        for _, key in sorted(queue.selection.keys.items()):
            queue.selection.close(key)
            row = key_row(key, before, state.now_ms)
            forgotten = state.now_ms + KEY_IDLE_MS
            name = f"f:{queue.home}:{before}:{key.name}"
            state.rows.put(name, {**row, "forget_at_ms": forgotten})
        queue.selection.dirty.clear()
        if queue.known:
            state.rows.put(f"q:{queue.home}", queue_row(queue))
    book.dirty.clear()
    _revive(state, book)
    state.index = load(state)
    for queue in state.index.queues.values():
        queue.selection.recount()
        queue.selection.dirty.update(queue.selection.keys)
        if queue.known:
            state.index.dirty[queue.home] = queue


def _revive(state: State, book: Book) -> None:
    """Keys that are left of the last time with this dimension took no part in the rounds since."""
    for name, row in tuple(state.rows.scan("f:")):
        if row["dimension"] == book.policy["fairness_key"]:
            rounds = book.queue(name[2:].partition(":")[0]).selection.rounds
            state.rows.put(name, {**row, "round": rounds})


_On = Callable[[State, Book, Record], Answer]

_ON: dict[str, _On] = {
    "jobs_ready": _on_jobs_ready,
    "job_rejected": _on_job_rejected,
    "worker_heartbeat": _on_heartbeat,
    "ack_requested": _on_ack,
    "renew_requested": _on_renew,
    "release_requested": _on_release,
    "purge_requested": _on_purge,
    "summary_requested": _on_summary,
    "consumer_registered": _on_consumer,
    "gates_requested": _on_gates,
    "revision_published": _on_revision,
}


def _on_record(state: State, record: Record, /) -> Answer:
    handle = _ON.get(record.kind)
    if handle is None:
        return Rejection("SCH-001", f"the scheduler has no use for kind {record.kind!r}")
    problem = words.problem_of(record.kind, record.value)
    if problem is not None:
        return Rejection("SCH-007", problem)
    answer = handle(state, state.index, record)
    state.index.flush(state)
    return answer


def _on_due(
    state: State,
    key: str,
    row: Any,  # noqa: ANN401 - by its prefix
    record: Record,
    /,
) -> Iterable[Output]:
    book: Book = state.index
    outputs: list[Output] = []
    prefix, _, rest = key.partition(":")
    home = rest.partition(":")[0]
    match prefix:
        case "q":
            queue = book.queue(home)
            outputs.append(summary(state, book, queue, record, None))
            state.rows.put(key, queue_row(queue))
        case "s":
            state.rows.delete(key)
        case "f":
            _forget(state, book, key, row)
        case "l":
            outputs += requests.expire(state, book, book.queue(home), row["consumer_id"])
            outputs += grants.deal(state, book, (home,))
        case "n":
            make_ready(state, book, book.queue(home), rest.partition(":")[2])
            outputs += grants.deal(state, book, (home,))
        case _:
            workers.gone(state, book, row["consumer_id"])
            outputs += grants.deal(state, book, tuple(book.dirty))
    book.flush(state)
    return outputs


def _forget(state: State, book: Book, key: str, row: Any) -> None:  # noqa: ANN401
    """Forget a fairness key that has had no work for a while; the queue keeps the sums."""
    state.rows.delete(key)
    queue = book.queue(key[2:].partition(":")[0])
    selected, deferred, promotions = queue.forgotten
    queue.forgotten = (
        selected + row["selected"],
        deferred + row["deferred"],
        promotions + row["promotions"],
    )
    if row["dimension"] == book.policy["fairness_key"]:
        queue.selection.keys.pop(row["fairness_key"], None)
        queue.selection.dirty.discard(row["fairness_key"])
    book.dirty[queue.home] = queue


FOLD = Fold(on_record=_on_record, on_due=_on_due, build_index=load)
