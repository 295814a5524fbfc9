"""What the scheduler's mailbox came to hold of queues, read as the scheduler reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from streams.codec import Codec
from streams.kafka import make_producer
from streams.settings import Settings
from streams.testing import event
from tests.support.app_cluster import read

CODEC = Codec()


class Relayed(NamedTuple):
    """What was new in a word when it came: by queue, in the order of coming."""

    jobs: dict[str, list[dict[str, Any]]]
    rejected: dict[str, list[dict[str, Any]]]
    words: int


def relayed(settings: Settings) -> Relayed:
    """Read the mailbox with one number a partition of a queue, below which nothing is new."""
    jobs: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    rejected: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    reached: dict[tuple[str, int | None, int], int] = {}
    words = read(settings, "worker.requests", {"jobs_ready", "job_rejected"})
    for word in words:
        value = word.value
        place = (value["queue"], value["shard"], value["source_partition"])
        known = reached.get(place, 0)
        if word.kind == "job_rejected":
            if value["offset"] >= known:
                rejected[value["queue"]].append(value)
                reached[place] = value["offset"] + 1
            continue
        assert value["first_offset"] <= value["next_offset"]
        jobs[value["queue"]] += [each for each in value["jobs"] if each["offset"] >= known]
        reached[place] = max(known, value["next_offset"])
    return Relayed(dict(jobs), dict(rejected), len(words))


def job(number: int, queue: str = "triage", *, tenant: str | None = "acme") -> bytes:
    """A job as anyone may write it."""
    return CODEC.encode(
        "trigger_dispatch",
        {
            "queue": queue,
            "dispatch_id": f"dispatch-{number}",
            "trigger_id": "issues",
            "binding_key": "issues@v1",
            "binding_version": 1,
            "event": event(f"e{number}", tenant_id=tenant),
        },
    )


def enqueue(settings: Settings, queue: str, values: Iterable[bytes]) -> None:
    """Append to a queue's topic, as a producer without headers of ours does."""
    producer = make_producer(settings)
    for value in values:
        producer.produce(f"worker.{queue}", value, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0
