"""What became of the jobs that an event's dispatches put on worker queues.

A dispatch ends with a receipt, which names the topic of its job; the job carries the dispatch's id,
and its position gives the id by which claims and responses know it.

Source: SEMANTICS 5.1, 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from streams.audit.happening import Happening, happenings
from streams.audit.log import LogReader, Place
from streams.codec import Codec
from streams.core import worker_queue
from streams.core.scheduler.job_id import job_id

__all__ = ["JobStory", "jobs_of"]

_SKEW_MS = 3_600_000
"""Dispatch, scheduler and worker put their own clocks' times; so far apart they may be."""

_ENDS = ("job_acked", "job_dead", "job_purged")
_CLAIMS = frozenset({"job_claimed", "claim_renewed"})


@dataclass(slots=True)
class JobStory:
    """One job: its enqueuing, claims and responses, in the order of their times.

    At one and the same time, decisions come in the order of their topic, and before responses.
    """

    queue: str
    job_event_id: str
    happenings: list[Happening] = field(default_factory=list[Happening])

    @property
    def outcome(self) -> str:
        """How it ended; `claimed` while a worker has it, `ready` while nobody has."""
        decided = [each.kind for each in self.happenings if each.kind in _DECISIONS]
        for kind in _ENDS:
            if kind in decided:
                return kind
        return "claimed" if decided and decided[-1] in _CLAIMS else "ready"


_DECISIONS = frozenset({*_CLAIMS, *_ENDS, "job_released", "claim_expired"})


def jobs_of(
    reader: LogReader, codec: Codec, dispatch_id: str, told: Iterable[Happening]
) -> list[JobStory]:
    """Return the jobs of a dispatch, by the receipts among what is told of it.

    Cost: the topics of its queue are read from an hour before the receipt on.
    """
    stories: list[JobStory] = []
    for each in told:
        queue = _queue(each, dispatch_id)
        if queue is not None:
            since_ms = each.at_ms - _SKEW_MS
            stories += _jobs(reader, codec, queue, dispatch_id, since_ms)
    return stories


def _queue(told: Happening, dispatch_id: str) -> str | None:
    """Return the queue that a receipt names; None for what is no receipt of this dispatch."""
    if told.kind != "dispatch_succeeded":
        return None
    try:
        receipt = msgspec.json.decode(told.value.get("result") or "")
    except msgspec.DecodeError:
        return None
    if not isinstance(receipt, dict) or receipt.get("dispatch_id") != dispatch_id:
        return None
    queue = receipt.get("queue")
    return queue if isinstance(queue, str) and "response_topic" in receipt else None


def _jobs(
    reader: LogReader, codec: Codec, queue: str, dispatch_id: str, since_ms: int
) -> Iterator[JobStory]:
    needle = dispatch_id.encode()
    found = happenings(
        reader,
        codec,
        _places(reader, worker_queue.topic_of(queue)),
        lambda record: needle in (record.value or b""),
        since_ms=since_ms,
    )
    for enqueued in found:
        if enqueued.value.get("dispatch_id") == dispatch_id:
            yield _job(reader, codec, queue, enqueued, since_ms)


def _job(
    reader: LogReader, codec: Codec, queue: str, enqueued: Happening, since_ms: int
) -> JobStory:
    name = job_id(enqueued.position.partition, enqueued.position.offset)
    story = JobStory(worker_queue.canonical(queue), name, [enqueued])
    key = name.encode()
    for topic in (worker_queue.claims_of(queue), worker_queue.responses_of(queue)):
        places = _places(reader, topic)
        story.happenings += happenings(
            reader, codec, places, lambda record: record.key == key, since_ms=since_ms
        )
    story.happenings.sort(key=lambda happening: happening.at_ms)
    return story


def _places(reader: LogReader, topic: str) -> list[Place]:
    return [(topic, partition) for partition in range(reader.partitions(topic))]
