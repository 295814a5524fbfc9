"""Create a queue: its word in the catalog first, then its topics.

    check the name → append `queue_configured` → read the catalog again: whose word was first?
                   → make the topics that are missing

A topic may be relayed as soon as it is there, so that what it is dealt out by must be known before.

Source: DESIGN "Who creates topics".
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from streams.codec import Codec
from streams.core import worker_queue
from streams.core.clock import rfc3339
from streams.core.ready_jobs import SHARDS_MAX
from streams.core.shards import spread
from streams.core.wire import FairnessDimension, QueueConfigured
from streams.edge.publisher import Publisher
from streams.edge.queue_catalog import CONFIGURED, config_key, queue_topics, read_configured
from streams.edge.registry_request import who
from streams.edge.topic_reader import TopicReader, topic_names
from streams.errors import ConfigError, TopologyError
from streams.provision import provision_queue, queue_problem
from streams.settings import Settings
from topology.edges import WORKER

__all__ = ["CreatedQueue", "create_queue"]

_REQUESTS, _ = WORKER.writes


class CreatedQueue(NamedTuple):
    """A queue as it is now; `topics` are those that were made just now."""

    queue: str
    shards: int
    shard_by: FairnessDimension
    topics: tuple[str, ...]


def create_queue(
    settings: Settings, codec: Codec, name: str, *, shards: int, shard_by: FairnessDimension
) -> CreatedQueue:
    """Create a queue, or find that it is there as it was asked for.  Blocks.

    Raises: ConfigError when it is there and dealt out otherwise; TopologyError when its name cannot
    be a topic or would be another's; BrokerError.
    """
    if not 1 <= shards <= SHARDS_MAX:
        raise ConfigError(f"--shards is {shards}, expected 1 to {SHARDS_MAX}")
    queue = name.strip()
    if queue and worker_queue.canonical(queue) != queue:
        raise TopologyError(
            f"queue {queue!r} would be known as {worker_queue.canonical(queue)!r}, expected only "
            "ASCII letters, digits, '.', '_' and '-'",
            remedy="choose another name",
        )
    queues = queue_topics(topic_names(settings))
    queue_problem(queue, taken=queues)
    known = read_configured(settings, codec).get(queue)
    if known is None and (queue not in queues or shards == 1):
        known = asyncio.run(_configure(settings, codec, queue, shards, shard_by))
    found: FairnessDimension = "tenant" if known is None else known["shard_by"]
    count = 1 if known is None else known["shards"]
    if count != shards or (shards > 1 and found != shard_by):
        raise ConfigError(
            f"queue {queue!r} is there with {count} shards by {found}, expected {shards} by "
            f"{shard_by}: its jobs are dealt out by what it was created with",
            remedy="create a queue of another name, and let this one run dry",
        )
    made = provision_queue(settings, queue)
    return CreatedQueue(queue, count, found, tuple(each.topic.name for each in made.changes))


async def _configure(
    settings: Settings, codec: Codec, queue: str, shards: int, shard_by: FairnessDimension
) -> QueueConfigured:
    """Say what the queue is created with; return the first word, which may be another's."""
    mine: QueueConfigured = {
        "queue": queue,
        "shards": shards,
        "shard_by": shard_by,
        "numbers": [] if shards == 1 else spread(queue, shards, _partitions(settings)),
        "configured_at": rfc3339(time.time_ns() // 1_000_000),
        "configured_by": who(),
    }
    publisher = Publisher(settings, name="queue-create")
    await publisher.start()
    try:
        await _append(publisher, codec, mine)
        first = (await asyncio.to_thread(read_configured, settings, codec))[queue]
        if first != mine:
            await _append(publisher, codec, first)  # compaction keeps the last word
        return first
    finally:
        await publisher.stop()


def _partitions(settings: Settings) -> int:
    """Return how many partitions the mailbox has.  Raises TopologyError, BrokerError."""
    with TopicReader(settings, _REQUESTS) as reader:
        return reader.partitions


async def _append(publisher: Publisher, codec: Codec, value: QueueConfigured) -> None:
    await publisher.append(
        worker_queue.QUEUES,
        kind=CONFIGURED,
        value=codec.encode(CONFIGURED, value),
        key=config_key(value["queue"]),
    )
