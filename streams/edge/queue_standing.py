"""How queues stand, true from any host: what was written before the call is counted.

    ends of the queues' topics → the relay has passed them → ask the scheduler → its answers

The answer comes behind whatever the relay appended, in the same mailbox partition, so that it knows
of every job that was there when the question was put.

Source: DESIGN "A job", decision A5; SEMANTICS 5.5.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from streams.audit.kafka_log import KafkaLog
from streams.audit.log import Place
from streams.codec import Codec, DecodeError
from streams.core import worker_queue
from streams.core.shards import mailbox_keys
from streams.core.wire import QueueSummary
from streams.edge.ingest.trace import new_uuid
from streams.edge.publisher import Publisher
from streams.edge.queue_catalog import queue_topics, read_configured
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.errors import BrokerError
from streams.settings import Settings
from topology.edges import RELAY

__all__ = ["ANSWER_S", "Ask", "Standing", "answers_of", "keys_of", "standings"]

ANSWER_S = 30.0
"""What the relay and the scheduler may take to catch up, besides what they are already at."""

REQUESTS = "worker.requests"

_LOOK_EVERY_S = 0.02
_READ_S = 0.5


class Standing(NamedTuple):
    """A queue: the summaries of its shards, and how many responses its topic has had."""

    queue: str
    shards: tuple[QueueSummary, ...]
    responses: int


class Ask(NamedTuple):
    """A request for the scheduler, and the id by which its answer is known."""

    kind: str
    key: str
    request_id: str
    value: Mapping[str, Any]


def standings(
    settings: Settings,
    codec: Codec,
    queues: Collection[str] | None = None,
    *,
    timeout_s: float = ANSWER_S,
) -> list[Standing]:
    """Return how queues stand, sorted; all of them when none is named.  Blocks.

    A queue that nobody has made is left out.

    Raises: BrokerError when relay or scheduler do not catch up in time; TopologyError.
    """
    with KafkaLog(settings) as log:
        known = queue_topics(log.topic_names())
        topics = known if queues is None else {q: known[q] for q in queues if q in known}
        if not topics:
            return []
        deadline_s = time.monotonic() + timeout_s
        _wait_until_relayed(log, list(topics.values()), deadline_s)
        keys = keys_of(settings, codec, topics)
        asks = [_summary_ask(key) for found in keys.values() for key in found]
        answers = asyncio.run(_asked(settings, codec, asks, deadline_s))
        responses = _responses(log, topics)
    by_key = {ask.key: answers[ask.request_id] for ask in asks}
    return [
        Standing(queue, tuple(by_key[key] for key in keys[queue]), responses[queue])
        for queue in sorted(topics)
    ]


def keys_of(settings: Settings, codec: Codec, queues: Iterable[str]) -> dict[str, list[str]]:
    """Return the mailbox keys of queues: one, or one for each shard."""
    configured = read_configured(settings, codec)
    return {queue: mailbox_keys(queue, configured.get(queue)) for queue in queues}


def _wait_until_relayed(log: KafkaLog, topics: Collection[str], deadline_s: float) -> None:
    """Return once the relay has passed what is in these topics now."""
    places = [(topic, number) for topic in topics for number in range(log.partitions(topic))]
    wanted = {place: span.end for place, span in log.spans(places).items() if span.end > span.start}
    while wanted:
        wanted = {place: end for place, end in wanted.items() if _place_of(log, place) < end}
        if wanted and time.monotonic() > deadline_s:
            (topic, partition), end = next(iter(wanted.items()))
            raise BrokerError(
                f"{topic}/{partition} ends at {end}, and the relay has not got there",
                retryable=True,
                remedy="see that roles relay and scheduler run, and look for `relay_waits` in "
                "the log",
            )
        if wanted:
            time.sleep(_LOOK_EVERY_S)


def _place_of(log: KafkaLog, place: Place) -> int:
    topic, partition = place
    return log.committed(RELAY.group, topic, [partition]).get(partition, 0)


def _responses(log: KafkaLog, topics: Mapping[str, str]) -> dict[str, int]:
    """Return how many responses each queue has had: they are written outside transactions."""
    places: dict[str, Place] = {
        queue: (worker_queue.responses_of(queue), 0)
        for queue in topics
        if log.partitions(worker_queue.responses_of(queue))
    }
    spans = log.spans(list(places.values()))
    return {queue: spans[places[queue]].end if queue in places else 0 for queue in topics}


def _summary_ask(key: str) -> Ask:
    request_id = f"summary_{new_uuid()}"
    value = {"queue": key, "request_id": request_id}
    return Ask("summary_requested", key, request_id, value)


async def _asked(
    settings: Settings, codec: Codec, asks: Sequence[Ask], deadline_s: float
) -> Mapping[str, QueueSummary]:
    found = await answers_of(
        settings, codec, asks, (worker_queue.QUEUES, "queue_summary"), deadline_s
    )
    return cast("Mapping[str, QueueSummary]", found)


async def answers_of(
    settings: Settings,
    codec: Codec,
    asks: Sequence[Ask],
    answered: tuple[str, str],
    deadline_s: float,
) -> Mapping[str, Mapping[str, Any]]:
    """Ask the scheduler, and return its answers by request id.

    Args:    answered: topic and kind of the answers.  deadline_s: by the monotonic clock.
    Raises:  BrokerError when one does not come; the request stays in the log.
    """
    topic, kind = answered
    reader = await asyncio.to_thread(TopicReader, settings, topic)
    try:
        ends = {number: reader.watermarks(number)[1] for number in range(reader.partitions)}
        reader.start_at(ends)
        await _send(settings, codec, asks)
        waiting = {ask.request_id: ask for ask in asks}
        found: dict[str, Mapping[str, Any]] = {}
        while waiting:
            for record in await asyncio.to_thread(reader.read, _READ_S):
                said = _said(record, kind, codec)
                if said is not None and waiting.pop(str(said["request_id"]), None):
                    found[str(said["request_id"])] = said
            if waiting and time.monotonic() > deadline_s:
                ask = next(iter(waiting.values()))
                raise BrokerError(
                    f"the scheduler has not answered for queue {ask.key!r} in time",
                    retryable=True,
                    remedy="see that a role scheduler runs, and look for `stage_partition_halted` "
                    "in its log",
                )
        return found
    finally:
        await asyncio.to_thread(reader.close)


async def _send(settings: Settings, codec: Codec, asks: Sequence[Ask]) -> None:
    publisher = Publisher(settings, name="queue-command")
    await publisher.start()
    try:
        appends = [
            publisher.append_soon(
                REQUESTS,
                kind=ask.kind,
                value=codec.encode(ask.kind, ask.value),
                key=ask.key.encode(),
            )
            for ask in asks
        ]
        await asyncio.gather(*appends)
    finally:
        await publisher.stop()


def _said(record: ReadRecord, kind: str, codec: Codec) -> Mapping[str, Any] | None:
    if record.kind != kind or record.value is None:
        return None
    try:
        schema, said = codec.decode(record.value)
    except DecodeError:
        return None
    return said if schema == kind else None
