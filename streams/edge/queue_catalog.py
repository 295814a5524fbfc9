"""The queues of a cluster: their topics, and what each was created with.

A queue is known by its topic, so that it exists as soon as somebody produces to it; the catalog
says in how many shards it is dealt out.  The first word about a queue stands, since its jobs are
dealt by it: whoever comes second repeats the first, so that compaction keeps it.

Source: DESIGN "Topics", "Who creates topics".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

from streams.codec import Codec, DecodeError
from streams.core import worker_queue
from streams.core.ready_jobs import SHARDS_MAX
from streams.core.wire import QueueConfigured, QueueSummary
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.errors import BrokerError
from streams.settings import Settings
from topology import TOPOLOGY
from topology.family import family_of, name_problem
from topology.topics import QUEUE_TOPICS

__all__ = [
    "CONFIGURED",
    "SUMMARY",
    "Catalog",
    "config_key",
    "is_usable",
    "queue_topics",
    "read_catalog",
    "read_configured",
]

CONFIGURED = "queue_configured"
SUMMARY = "queue_summary"

_JOBS = QUEUE_TOPICS[0]
_PREFIX = _JOBS.partition("{")[0]
_READ_S = 1.0
_SILENT_READS_MAX = 30


def queue_topics(names: Collection[str]) -> dict[str, str]:
    """Return the queues whose topics are among these names: topic by queue, sorted."""
    found: dict[str, str] = {}
    for name in sorted(names):
        if not name.startswith(_PREFIX):
            continue
        declared = family_of(TOPOLOGY, name)
        if declared is not None and declared.name == _JOBS:
            found[name.removeprefix(_PREFIX)] = name
    return found


def config_key(queue: str) -> bytes:
    """Return the catalog's key of what a queue was created with: no queue's own name."""
    return b"\0" + queue.encode()


def is_usable(word: QueueConfigured) -> bool:
    """Whether a queue can be dealt out by a word; nobody who creates queues says another."""
    return 1 <= word["shards"] <= SHARDS_MAX


def _has_topic(queue: str) -> bool:
    """Whether there can be a topic of a queue: without one, nobody has folded a job of it."""
    topic = worker_queue.topic_of(queue)
    return name_problem(topic) is None and queue in queue_topics([topic])


class Catalog(NamedTuple):
    """What the catalog says: what each queue was created with, and its latest summaries."""

    configured: Mapping[str, QueueConfigured]
    summaries: tuple[QueueSummary, ...]


def read_configured(settings: Settings, codec: Codec) -> Mapping[str, QueueConfigured]:
    """Read what queues were created with, by queue; the first word about each.

    Raises: TopologyError when the catalog's topic is missing; BrokerError.
    """
    return read_catalog(settings, codec).configured


def read_catalog(settings: Settings, codec: Codec) -> Catalog:
    """Read the catalog; summaries are by queue and shard.  Raises as `read_configured`."""
    configured: dict[str, QueueConfigured] = {}
    summaries: dict[tuple[str, int], QueueSummary] = {}
    for record in _records(settings):
        kind, said = _said(record, codec)
        if kind == CONFIGURED:
            word = cast("QueueConfigured", said)
            if is_usable(word):
                configured.setdefault(word["queue"], word)
        elif kind == SUMMARY:
            summary = cast("QueueSummary", said)
            if _has_topic(summary["queue"]):
                summaries[summary["queue"], summary["shard"] or 0] = summary
    return Catalog(configured, tuple(summaries[place] for place in sorted(summaries)))


def _records(settings: Settings) -> Iterator[ReadRecord]:
    with TopicReader(settings, worker_queue.QUEUES) as reader:
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        silent = 0
        while not reader.at_end:
            records = reader.read(_READ_S)
            silent = 0 if records or reader.at_end else silent + 1
            if silent > _SILENT_READS_MAX:
                message = f"{worker_queue.QUEUES}: no answer from the broker for {silent} s"
                raise BrokerError(message, retryable=True)
            yield from records


def _said(record: ReadRecord, codec: Codec) -> tuple[str, Mapping[str, Any]]:
    """Return a record's kind and what it says; no kind for what is of no use here."""
    if record.kind not in {CONFIGURED, SUMMARY} or record.value is None:
        return "", {}
    try:
        schema, said = codec.decode(record.value)
    except DecodeError:
        return "", {}
    return (schema, said) if schema == record.kind else ("", {})
