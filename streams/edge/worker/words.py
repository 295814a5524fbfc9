"""What a worker appends: heartbeats, renewals, acks, releases and gates; and responses.

Everything about a queue goes to the one partition of the mailbox that the queue lives in.

Source: DESIGN "A job".
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streams.codec import Codec
from streams.core import worker_queue
from streams.core.placement import partition_of
from streams.core.record import Position
from streams.core.wire import ConsumerGates, JobResponse
from streams.edge.invoker.reporter import Appender
from streams.edge.worker.deliveries import REQUESTS
from streams.edge.worker.held import HeldJob
from streams.observe import logs

__all__ = ["Words", "by_queue"]

_LOG = logs.logger(__name__)

CLAIMS_PER_WORD_MAX = 5_000
"""Claims in one record: some hundred bytes each at most, in a record of 900 KB."""

Appended = asyncio.Future[Position]


class Words:
    """Appends under the name of one worker.

    Args:    partitions: of the mailbox.
    """

    def __init__(
        self, appender: Appender, codec: Codec, consumer_id: str, ttl_ms: int, partitions: int
    ) -> None:
        self._appender = appender
        self._encode = codec.encode
        self._encode_response = codec.encoder("job_response")
        self._consumer_id = consumer_id
        self._ttl_ms = ttl_ms
        self._partitions = partitions
        self._responses: dict[str, str] = {}

    def partition_of(self, queue_key: str) -> int:
        """Return the partition of the mailbox that a queue lives in."""
        return partition_of(queue_key.encode(), self._partitions)

    def heartbeat(self, partition: int, said: Mapping[str, Any]) -> Appended:
        """Say what this worker could take from the queues of a partition, and what it has."""
        value = {"consumer_id": self._consumer_id, "claim_ttl_ms": self._ttl_ms, **said}
        return self._to_partition("worker_heartbeat", partition, value)

    def renew(self, partition: int, incarnation: str, claims: Sequence[HeldJob]) -> Appended:
        """Ask for more time, for claims of a partition."""
        value = {
            "consumer_id": self._consumer_id,
            "incarnation": incarnation,
            "claim_ttl_ms": self._ttl_ms,
            "claims": [each.ref for each in claims],
        }
        return self._to_partition("renew_requested", partition, value)

    def ack(self, queue_key: str, incarnation: str, done: Sequence[HeldJob]) -> Appended:
        """Say that jobs of a queue are done."""
        value = {
            "queue": queue_key,
            "consumer_id": self._consumer_id,
            "incarnation": incarnation,
            "acks": [each.claimed for each in done],
        }
        return self._to_queue("ack_requested", queue_key, value)

    def release(
        self, queue_key: str, incarnation: str, claims: Sequence[HeldJob], reason: str
    ) -> None:
        """Give jobs of a queue back; a word that is lost is told in our log alone."""
        value = {
            "queue": queue_key,
            "consumer_id": self._consumer_id,
            "incarnation": incarnation,
            "claims": [each.claimed for each in claims],
            "reason": reason,
        }
        appended = self._to_queue("release_requested", queue_key, value)
        appended.add_done_callback(_note_unreleased)

    def register(self, queue_key: str, digest: str, gates: Sequence[ConsumerGates]) -> Appended:
        """Say which gates the consumer manifest declares."""
        value = {
            "queue": queue_key,
            "consumer_id": self._consumer_id,
            "digest": digest,
            "gates": gates,
        }
        return self._to_queue("consumer_registered", queue_key, value)

    def ask(self, queue_key: str, incarnation: str, jobs: Sequence[Mapping[str, Any]]) -> Appended:
        """Ask whether jobs of a queue may start, by their gates."""
        value = {
            "queue": queue_key,
            "consumer_id": self._consumer_id,
            "incarnation": incarnation,
            "jobs": jobs,
        }
        return self._to_queue("gates_requested", queue_key, value)

    def response(self, value: JobResponse) -> bytes:
        """Encode what a job came to."""
        return self._encode_response(value)

    def respond(self, held: HeldJob, value: bytes) -> Appended:
        """Append what a job came to."""
        topic = self._responses.get(held.queue)
        if topic is None:
            topic = self._responses[held.queue] = worker_queue.responses_of(held.queue)
        return self._appender.append_soon(
            topic,
            kind="job_response",
            value=value,
            key=held.job_event_id.encode(),
            headers=() if held.traceparent is None else _trace(held.traceparent),
        )

    def _to_queue(self, kind: str, queue_key: str, value: Mapping[str, Any]) -> Appended:
        return self._append(kind, queue_key.encode(), self.partition_of(queue_key), value)

    def _to_partition(self, kind: str, partition: int, value: Mapping[str, Any]) -> Appended:
        return self._append(kind, f"worker:{self._consumer_id}".encode(), partition, value)

    def _append(self, kind: str, key: bytes, partition: int, value: Mapping[str, Any]) -> Appended:
        return self._appender.append_soon(
            REQUESTS, kind=kind, value=self._encode(kind, value), key=key, partition=partition
        )


def by_queue(claims: Iterable[HeldJob]) -> list[tuple[str, list[HeldJob]]]:
    """Part claims by queue, in words of a bounded size."""
    parts: defaultdict[str, list[HeldJob]] = defaultdict(list)
    for each in claims:
        parts[each.queue_key].append(each)
    return [
        (queue_key, part[at : at + CLAIMS_PER_WORD_MAX])
        for queue_key, part in parts.items()
        for at in range(0, len(part), CLAIMS_PER_WORD_MAX)
    ]


def _note_unreleased(appended: Appended) -> None:
    error = appended.exception()
    if error is not None:
        _LOG.warning("worker_not_released", extra={"reason": str(error)})


def _trace(traceparent: str) -> tuple[tuple[str, bytes], ...]:
    return (("traceparent", traceparent.encode()),)
