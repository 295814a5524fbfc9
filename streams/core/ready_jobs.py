"""What the relay says to the scheduler: jobs of a queue's topic, in their order, a batch at a time.

    record of worker.<queue> → a job, or a rejection → `jobs_ready` / `job_rejected` by mailbox key

Each word covers offsets from where the last one of its partition ended, so that a scheduler drops
what it has by one number.  A queue of several shards deals its jobs out by a hash of what the queue
was configured with: where a job goes hangs on the job and on that alone, never on who relays it,
or a repeat would be another job.

Invariants: every record of a source partition is in exactly one word, or in none where it is
neither job nor rejection (control records of transactions); words of one key are in offset order.

Source: DESIGN "A job", "Topics"; law 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from streams.core import bounds
from streams.core.placement import partition_of
from streams.core.shards import mailbox_key
from streams.core.wire import (
    FairnessDimension,
    JobRejected,
    JobsReady,
    ReadyJob,
    TriggerDispatch,
)

__all__ = [
    "JOB_BYTES_MAX",
    "NO_TENANT",
    "READY_BYTES_MAX",
    "READY_JOBS_MAX",
    "SHARDS_MAX",
    "TRACEPARENT_BYTES_MAX",
    "Dealt",
    "Refused",
    "Source",
    "Word",
    "ready_job",
    "rejected",
    "shard_of",
    "words_of",
]

JOB_BYTES_MAX = 580_000
"""Of a job's record: with what is said of it, it must fit into one record of the mailbox."""

READY_JOBS_MAX = 500
READY_BYTES_MAX = 400_000
"""A word is closed when it holds so many jobs, or so many bytes of them, names included: one above
the mailbox's bound would be quarantined, and all its jobs with it."""

TRACEPARENT_BYTES_MAX = 64
"""Of the header that goes on with a job; 55 are written today.  What is longer is no trace."""

_JOB_OVERHEAD_BYTES = 64
"""Numbers and lengths of a job in a word, at most."""

SHARDS_MAX = 64
"""More parts of one queue than any mailbox has partitions to use."""

NO_TENANT = "_no_tenant"
"""The fairness key of jobs whose event belongs to no tenant.  Source: SEMANTICS 6.2."""

RAW_BYTES_MAX = 65_536
KEY_BYTES_MAX = 1_024
KIND_CHARS_MAX = 200
REASON_CHARS_MAX = 2_000

_PRIORITIES = frozenset({"high", "normal", "low"})


class Source(NamedTuple):
    """A partition of a queue's topic, and how the queue is dealt out."""

    queue: str
    topic: str
    partition: int
    shards: int = 1
    shard_by: FairnessDimension = "tenant"
    numbers: tuple[int, ...] = ()
    """Of its shards; none for 0, 1, 2, …."""

    def number(self, shard: int, /) -> int:
        """Return the number of a shard."""
        return self.numbers[shard] if self.numbers else shard


class Refused(NamedTuple):
    """A record that is no job: where it stands, why, and what is kept of it."""

    offset: int
    timestamp_ms: int
    oversized: bool
    reason: str
    kind: str | None
    key: bytes | None
    value: bytes


Dealt = ReadyJob | Refused


class Word(NamedTuple):
    """A record for the scheduler's mailbox."""

    kind: str
    key: str
    value: JobsReady | JobRejected


def ready_job(
    offset: int,
    occurred_at_ms: int,
    value: TriggerDispatch,
    body: bytes,
    traceparent: str | None,
    /,
) -> ReadyJob | str:
    """Make the job of a decoded record, or say what makes it unusable."""
    event = value["event"]
    tenant_id = event["tenant_id"]
    problem = bounds.text_problem(
        (
            ("trigger_id", value["trigger_id"], bounds.ID_CHARS_MAX),
            ("dispatch_id", value["dispatch_id"], bounds.ID_CHARS_MAX),
            ("binding_key", value["binding_key"], bounds.ID_CHARS_MAX + 12),
            ("event.id", event["id"], bounds.ID_CHARS_MAX),
            ("event.tenant_id", tenant_id, bounds.ID_CHARS_MAX),
        )
    )
    if problem is not None:
        return problem
    if not value["trigger_id"]:
        return "trigger_id is empty: no worker could resolve it"
    priority = value["priority"]
    return {
        "offset": offset,
        "occurred_at_ms": occurred_at_ms,
        # What a worker does not know counts as the default.  Source: SEMANTICS 5.1.
        "priority": priority if priority in _PRIORITIES else "normal",
        "tenant_id": tenant_id,
        "binding_key": value["binding_key"],
        "trigger_id": value["trigger_id"],
        "event_id": event["id"],
        "traceparent": _trace(traceparent),
        "body": body,
    }


def _trace(traceparent: str | None) -> str | None:
    """Return the trace of a job: anyone writes the header, and each record about the job has it."""
    if traceparent is None or _bytes_of(traceparent) > TRACEPARENT_BYTES_MAX:
        return None
    return traceparent


def _bytes_of(text: str | None) -> int:
    """Return how many bytes a text has in a record, at most: the relay looks at each job's."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)


def _size_of(job: ReadyJob) -> int:
    """Return how many bytes a job has in a word, at most."""
    return (
        len(job["body"])
        + _bytes_of(job["trigger_id"])
        + _bytes_of(job["binding_key"])
        + _bytes_of(job["event_id"])
        + _bytes_of(job["tenant_id"])
        + _bytes_of(job["traceparent"])
        + _JOB_OVERHEAD_BYTES
    )


def words_of(source: Source, dealt: Sequence[Dealt], first: int, following: int, /) -> list[Word]:
    """Return what is said of the records with offsets in [first, following), in order.

    Args:  dealt: those of them that are jobs or rejections, by offset.
    """
    if source.shards == 1:
        return _words(source, None, dealt, first, following)
    parts: list[list[Dealt]] = [[] for _ in range(source.shards)]
    for each in dealt:
        parts[shard_of(source, each)].append(each)
    return [
        word
        for shard, part in enumerate(parts)
        if part
        for word in _words(source, source.number(shard), part, first, following)
    ]


def _words(
    source: Source, shard: int | None, dealt: Iterable[Dealt], first: int, following: int
) -> list[Word]:
    words: list[Word] = []
    jobs: list[ReadyJob] = []
    size, begins = 0, first
    for each in dealt:
        if isinstance(each, Refused):
            if jobs:
                words.append(_ready(source, shard, jobs, begins, each.offset))
            words.append(
                Word(
                    "job_rejected", mailbox_key(source.queue, shard), rejected(source, shard, each)
                )
            )
            jobs, size, begins = [], 0, each.offset + 1
            continue
        length = _size_of(each)
        if jobs and (len(jobs) == READY_JOBS_MAX or size + length > READY_BYTES_MAX):
            words.append(_ready(source, shard, jobs, begins, each["offset"]))
            jobs, size, begins = [], 0, each["offset"]
        jobs.append(each)
        size += length
    if jobs:
        words.append(_ready(source, shard, jobs, begins, following))
    return words


def _ready(
    source: Source, shard: int | None, jobs: list[ReadyJob], first: int, following: int
) -> Word:
    value: JobsReady = {
        "queue": source.queue,
        "shard": shard,
        "shards": source.shards,
        "source_partition": source.partition,
        "first_offset": first,
        "next_offset": following,
        "jobs": jobs,
    }
    return Word("jobs_ready", mailbox_key(source.queue, shard), value)


def rejected(source: Source, shard: int | None, refused: Refused, /) -> JobRejected:
    """Return what the scheduler hears of a record that is no job."""
    kind, key, value = refused.kind, refused.key, refused.value
    return {
        "queue": source.queue,
        "shard": shard,
        "shards": source.shards,
        "topic": source.topic,
        "source_partition": source.partition,
        "offset": refused.offset,
        "timestamp_ms": refused.timestamp_ms,
        "oversized": refused.oversized,
        "reason": refused.reason[:REASON_CHARS_MAX],
        "kind": None if kind is None else kind[:KIND_CHARS_MAX],
        "key": None if key is None else key[:KEY_BYTES_MAX],
        "raw": value[:RAW_BYTES_MAX],
        "raw_size": len(value),
        "raw_sha256": sha256(value).hexdigest(),
    }


def shard_of(source: Source, dealt: Dealt, /) -> int:
    """Return the shard of a job, from 0; what is no job goes to the first."""
    if isinstance(dealt, Refused):
        return 0
    tenant = dealt["tenant_id"] or NO_TENANT
    match source.shard_by:
        case "binding":
            key = dealt["binding_key"]
        case "trigger_id":
            key = dealt["trigger_id"]
        case "tenant_and_binding":
            key = f"{tenant}|{dealt['binding_key']}"
        case _:
            key = tenant
    return partition_of(key.encode(), source.shards)
