"""Invariants of worker queues, judged on the log alone: nothing of what decided is asked.

    rows of the scheduler → its mailbox → claims, to their end → jobs on the queue's topic

The rows say how far a topic was folded; every job before that is over, or is a row.  Claims are
read after the rows, so that what ends meanwhile is found ended.  Of a job that is over, and of one
that is there, a byte is kept.  What the mailbox says of jobs and policies
is noted in files, and judged with the claims that came of it (`streams.audit.fairness_history`).

Source: DESIGN "Proof", section 9.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from streams.audit.claim_history import ClaimHistory, Violation
from streams.audit.job_marks import JobMarks
from streams.audit.log import LogReader, LogRecord
from streams.audit.queue_turns import QueueTurns
from streams.codec import Codec, DecodeError
from streams.core.ready_jobs import Dealt, Refused, Source, shard_of
from streams.core.record import Position
from streams.core.shards import numbers_of
from streams.core.wire import FairnessDimension, QueueConfigured
from streams.edge.queue_catalog import is_usable, queue_topics
from streams.edge.relay.jobs import dealt_of
from topology.model import Stage

__all__ = ["QueueVerdict", "judge_queues"]


@dataclass(slots=True)
class QueueVerdict:
    """What was found of one queue: `jobs` that were folded, `claims` that were given."""

    queue: str
    jobs: int = 0
    claims: int = 0
    violations: list[Violation] = field(default_factory=list[Violation])
    notes: list[str] = field(default_factory=list[str])


class _Kept(NamedTuple):
    """The scheduler's rows of one queue: shards, places folded to, and jobs that are there."""

    shards: int
    folded: dict[tuple[int | None, int], int]
    waiting: JobMarks


def judge_queues(
    reader: LogReader, codec: Codec, stage: Stage, *, cap: int = 0
) -> list[QueueVerdict]:
    """Judge every queue that the scheduler knows, by name; `stage` is the scheduler's.

    Args:   cap: claims that one fairness key may have at once; 0 sets no bound.
    Raises: BrokerError.
    """
    kept = _rows(reader, codec, stage)
    topics = queue_topics(reader.topic_names())
    with tempfile.TemporaryDirectory(prefix="harn-audit-") as folder:
        turns = QueueTurns(reader, codec, stage, Path(folder))
        return [
            _judge(reader, codec, queue, topics[queue], kept[queue], turns, cap)
            for queue in sorted(topics.keys() & kept.keys())
        ]


def _judge(
    reader: LogReader,
    codec: Codec,
    queue: str,
    topic: str,
    kept: _Kept,
    turns: QueueTurns,
    cap: int,
) -> QueueVerdict:
    verdict = QueueVerdict(queue)
    history = _history(reader, codec, topic, verdict, turns, cap)
    verdict.claims = history.claims
    for job_id, position in _jobs(reader, codec, topic, queue, kept):
        verdict.jobs += 1
        if not kept.waiting.of(job_id) and not history.ended(job_id):
            what = f"job {job_id} was folded, and is neither over nor there"
            verdict.violations.append(Violation(queue, position, what))
    return verdict


def _rows(reader: LogReader, codec: Codec, stage: Stage) -> dict[str, _Kept]:
    """Return what the rows say; of jobs that are there their ids alone are read."""
    waiting: defaultdict[str, JobMarks] = defaultdict(JobMarks)
    rows: list[Mapping[str, Any]] = []
    places = [(stage.changelog, number) for number in range(reader.partitions(stage.changelog))]
    for place, span in reader.spans(places).items():
        queues: dict[bytes, bytes] = {}
        for records in reader.read(place, *span):
            for record in records:
                key, value = record.key or b"", record.value
                if key.startswith(b"j:"):
                    mailbox_key, _, job_id = key[2:].decode().rpartition(":")
                    waiting[mailbox_key.partition("#")[0]].mark(job_id, int(value is not None))
                elif key.startswith(b"q:") and value is not None:
                    queues[key] = value
        rows += [codec.decode(value)[1] for value in queues.values()]
    found: dict[str, _Kept] = {}
    for row in rows:
        queue = row["queue"]
        shards = max(row["shards"], 1)  # a word that is not the relay's may say none
        known = found.setdefault(queue, _Kept(shards, {}, waiting[queue]))
        for each in row["relayed"]:
            known.folded[row["shard"], each["source_partition"]] = each["next_offset"]
    return found


def _jobs(
    reader: LogReader, codec: Codec, topic: str, queue: str, kept: _Kept
) -> Iterator[tuple[str, Position]]:
    """Yield the jobs of a queue's topic that its scheduler has folded."""
    partitions = reader.partitions(topic)
    shard_by, numbers = _dealt_by(reader, codec, queue, kept.shards)
    for place, span in reader.spans([(topic, number) for number in range(partitions)]).items():
        source = Source(queue, topic, place[1], kept.shards, shard_by, numbers)
        for records in reader.read(place, span.start, span.end):
            for record in records:
                dealt = dealt_of(codec, record)
                if isinstance(dealt, Refused):
                    continue
                if record.offset < _folded_to(kept, source, dealt):
                    job_id = (
                        str(record.offset) if partitions == 1 else f"{place[1]}-{record.offset}"
                    )
                    yield job_id, Position(topic, place[1], record.offset)


def _folded_to(kept: _Kept, source: Source, dealt: Dealt) -> int:
    shard = None if source.shards == 1 else source.number(shard_of(source, dealt))
    return kept.folded.get((shard, source.partition), 0)


def _dealt_by(
    reader: LogReader, codec: Codec, queue: str, shards: int
) -> tuple[FairnessDimension, tuple[int, ...]]:
    """Return what a queue's jobs are dealt by, and to which shards: the catalog's first word."""
    places = [("worker.queues", number) for number in range(reader.partitions("worker.queues"))]
    for place, span in reader.spans(places).items():
        for records in reader.read(place, *span):
            for record in records:
                if ("kind", b"queue_configured") in record.headers and record.value is not None:
                    said = _read(codec, "queue_configured", record)
                    if isinstance(said, str) or said["queue"] != queue:
                        continue
                    if is_usable(cast("QueueConfigured", said)):
                        return said["shard_by"], numbers_of(shards, said["numbers"])
    return "tenant", ()


def _history(
    reader: LogReader,
    codec: Codec,
    topic: str,
    verdict: QueueVerdict,
    turns: QueueTurns,
    cap: int,
) -> ClaimHistory:
    place = (f"{topic}.claims", 0)
    span = reader.spans([place])[place]
    whole = span.start == 0
    if not whole:
        verdict.notes.append(f"claims before offset {span.start} were removed, and are not judged")
    history = ClaimHistory(verdict.queue, cap=cap, whole=whole)
    turns_of = turns.of(verdict.queue, whole=whole)
    for records in reader.read(place, *span):
        for record in records:
            kind = _kind(record)
            value = _read(codec, kind, record)
            position = Position(*place, record.offset)
            if isinstance(value, str):
                verdict.violations.append(Violation(verdict.queue, position, value))
            else:
                verdict.violations += history.add(position, kind, value)
                for what in turns_of.add(position, record, kind, value):
                    verdict.violations.append(Violation(verdict.queue, position, what))
    verdict.notes += turns_of.notes
    return history


def _kind(record: LogRecord) -> str:
    texts = (text for name, text in record.headers if name == "kind" and text is not None)
    return next((text.decode(errors="replace") for text in texts), "")


def _read(codec: Codec, kind: str, record: LogRecord) -> Mapping[str, Any] | str:
    """Return what a record of this kind says, or why it says nothing."""
    try:
        schema, value = codec.decode(record.value or b"")
    except DecodeError as error:
        return f"a record of kind {kind!r} that cannot be read: {error}"
    return value if schema == kind else f"a record of kind {kind!r} that holds a {schema}"
