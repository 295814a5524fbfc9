"""A worker in memory: runs granted jobs under the same protocol as the live one, step by step.

A job's handler is called when the job begins; its response, and then its ack, are appended once its
duration in virtual time has passed.  A claim is renewed at half its time; a job that failed keeps
its claim until that runs out.  A lost worker takes along what it ran, and is followed by another
incarnation under its name.

The live worker says once a second that it is there.  Here that would be something which always
waits for time, so that nothing were ever at an end: this one says it when its queues have changed
since it said it last, and when it has room that the scheduler does not know of.

Source: DESIGN "A job".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from streams.codec import Codec
from streams.core import worker_queue
from streams.core.placement import partition_of
from streams.core.shards import mailbox_key
from streams.core.wire import GatesAnswered, JobsGranted, JobsWaiting
from streams.edge.executors.call import Call
from streams.edge.executors.outcome import timed_out
from streams.edge.worker.consumer import Consumer
from streams.edge.worker.deliveries import DELIVERIES, REQUESTS
from streams.edge.worker.gate_asks import asked_for
from streams.edge.worker.held import HeldJob, HeldJobs
from streams.edge.worker.response import response_of
from streams.edge.worker.run import Answer, JobRunner
from streams.edge.worker.shares import Shares
from streams.testing.invoker import Duration, Run, run_now
from streams.testing.memory_kafka import MemoryKafka, header
from streams.testing.relay import create_queue_topics, source_of
from topology.model import Topology

__all__ = ["CLAIM_TTL_MS", "MemoryWorker", "WorkerTerms"]

CLAIM_TTL_MS = 300_000
"""How long its claims last unless the test says otherwise, as for `harn worker run`."""

BEAT_MS = 500
"""What it said of itself counts for so long at least: less than any time to live of a worker."""

_BELIEVED_MS = 5 * BEAT_MS // 2
"""How long it is believed that jobs wait where a partition has said so."""

_MANY = 1_000


class WorkerTerms(NamedTuple):
    """What a worker does: its name, its queues, its handlers and how long they take."""

    consumer_id: str
    queues: tuple[str, ...]
    consumer: Consumer
    duration: Duration
    concurrency: int
    claim_ttl_ms: int


class _Running(NamedTuple):
    held: HeldJob
    answer: Answer
    ends_ms: int


class MemoryWorker:
    """One incarnation of a worker.  `runs` collects every call of a handler.

    Times of its claims are milliseconds of the virtual clock.
    """

    def __init__(
        self,
        terms: WorkerTerms,
        number: int,
        kafka: MemoryKafka,
        codec: Codec,
        topology: Topology,
        runs: list[Run],
    ) -> None:
        self.terms = terms
        self.incarnation = f"incarnation-{number}"
        self._kafka, self._codec, self._runs = kafka, codec, runs
        self._held = HeldJobs()
        self._jobs = JobRunner(codec, terms.consumer, self, self._answer, self._ask)
        self._running: list[_Running] = []
        self._to_ack: deque[HeldJob] = deque()
        self._duration_ms = self._fence = 0
        for queue in terms.queues:
            create_queue_topics(kafka, topology, queue)
        self._partition = partition_of(terms.consumer_id.encode(), kafka.partitions(DELIVERIES))
        self._next = kafka.spans([self._place])[self._place].end
        self._said: tuple[int, ...] = ()
        self._said_ms = self._seq = 0
        self._granted_at_ms: dict[int, int] = {}
        self._has_news = True
        self._shares = Shares((), _BELIEVED_MS)
        self._summaries_read = [0] * kafka.partitions(worker_queue.QUEUES)
        self._ready: dict[str, int] = {}
        self._register()

    @property
    def _place(self) -> tuple[str, int]:
        return DELIVERIES, self._partition

    # ------------------------------------------------------------------ what it can do
    def next_due_ms(self) -> int | None:
        """Return when it has something to do that only waits for time; None when nothing does."""
        due = [each.ends_ms for each in self._running]
        for held in self._held:
            expires_ms = int(held.expires_s)
            if held.state == "failed":
                due.append(expires_ms)
            elif not held.lost:
                due.append(expires_ms - self.terms.claim_ttl_ms // 2)
        return min(due, default=None)

    def has_work(self) -> bool:
        """Whether `work` would do something now."""
        due_ms = self.next_due_ms()
        return (
            (due_ms is not None and due_ms <= self._kafka.clock.now_ms)
            or bool(self._to_ack)
            or bool(self._kafka.fetch(*self._place, self._next, 1))
            or self._can_begin
            or self._must_say
        )

    @property
    def _can_begin(self) -> bool:
        return self._held.waiting > 0 and self._held.running < self.terms.concurrency

    def work(self) -> None:
        """Do one thing; `has_work` came before."""
        now_ms = self._kafka.clock.now_ms
        ended = min(self._running, key=lambda each: each.ends_ms, default=None)
        delivered = self._kafka.fetch(*self._place, self._next, 1)
        if delivered:
            self._next = delivered[0].offset + 1
            if delivered[0].key == self.terms.consumer_id.encode():
                self._take(header(delivered[0].headers, "kind"), delivered[0].value or b"")
        elif self._to_ack:
            self._ack(self._to_ack.popleft())
        elif ended is not None and ended.ends_ms <= now_ms:
            self._running.remove(ended)
            self._respond(ended)
        elif self._can_begin:
            self._begin()
        elif self._must_say:
            self._say()
        else:
            self._expire_and_renew()

    # ------------------------------------------------------------------ jobs
    def _take(self, kind: str | None, value: bytes) -> None:
        if kind == "gates_answered":
            self._admit(cast("GatesAnswered", self._codec.decode(value)[1]))
        if kind == "jobs_waiting":
            self._note_waiting(cast("JobsWaiting", self._codec.decode(value)[1]))
        if kind != "jobs_granted":
            return
        granted = cast("JobsGranted", self._codec.decode(value)[1])
        if granted["incarnation"] != self.incarnation:
            return
        partition = partition_of(granted["queue"].encode(), self._kafka.partitions(REQUESTS))
        self._shares.granted(partition, self._kafka.clock.now_ms)
        self._granted_at_ms[partition] = granted["granted_at_ms"]
        ttl_ms = min(self.terms.claim_ttl_ms, granted["claim_ttl_ms"])
        for job in granted["jobs"]:
            self._held.grant(granted["queue"], job, self._kafka.clock.now_ms + ttl_ms)

    def _ask(self, held: HeldJob, keys: dict[str, str]) -> None:
        held.gate_keys = keys
        self._held.ask(held)
        asked = {"queue": held.queue_key, "jobs": asked_for([held])}
        self._append("gates_requested", held.queue_key, asked)

    def _admit(self, said: GatesAnswered) -> None:
        if said["incarnation"] != self.incarnation:
            return
        for each in said["answers"]:
            if each["answer"] == "admitted":
                self._held.admit(said["queue"], each["claim_id"])
            else:
                self._held.withdraw(said["queue"], each["claim_id"])
                self._has_news = True  # it has room that the scheduler does not know of

    def _note_waiting(self, said: JobsWaiting) -> None:
        if said["incarnation"] != self.incarnation:
            return
        self._shares.waiting(said["partition"], said["weight"], self._kafka.clock.now_ms)
        self._has_news = self._has_news or self._room > 0

    def _begin(self) -> None:
        held = self._held.next()
        assert held is not None, "`has_work` said so"
        self._duration_ms, self._fence = 0, int(held.claim_id.rpartition(".")[2])
        self._jobs.start(held)

    def start(self, call: Call) -> None:
        """Call a handler or a predicate; as a `CallRunner`."""
        outcome = run_now(call.handler, call.event, call.context, call.purpose)
        if call.purpose == "handler":
            now_ms = self._kafka.clock.now_ms
            self._runs.append(Run(self.terms.consumer_id, call.context, self._fence, now_ms))
            self._duration_ms = self.terms.duration(call.context)
            if call.timeout_ms is not None and self._duration_ms > call.timeout_ms:
                outcome, self._duration_ms = timed_out(call.timeout_ms), call.timeout_ms
        call.ended(outcome)

    def _answer(self, held: HeldJob, answer: Answer) -> None:
        """Keep what a job came to, until its time has passed."""
        ends_ms = self._kafka.clock.now_ms + self._duration_ms
        self._running.append(_Running(held, answer, ends_ms))

    def _respond(self, ended: _Running) -> None:
        held, answer, _ = ended
        self._held.answer(held)
        holds = self._holds(held)
        response = response_of(
            held,
            answer,
            consumer_id=self.terms.consumer_id,
            handled_at_ms=self._kafka.clock.now_ms,
            claim_lost=not holds,
        )
        topic = worker_queue.responses_of(held.queue)
        trace = [] if held.traceparent is None else [("traceparent", held.traceparent.encode())]
        self._kafka.append(
            topic,
            self._codec.encode("job_response", response),
            key=held.job_event_id.encode(),
            headers=[("kind", b"job_response"), *trace],
        )
        if answer.done:
            self._to_ack.append(held)
        elif holds:
            self._held.fail(held)
            self._has_news = True  # the scheduler counts it until it hears otherwise
        else:
            self._held.drop(held)

    def _ack(self, held: HeldJob) -> None:
        if self._holds(held):
            acks = {"queue": held.queue_key, "acks": [held.claimed]}
            self._append("ack_requested", held.queue_key, acks)
        self._held.drop(held)

    def _holds(self, held: HeldJob) -> bool:
        return not held.lost and self._kafka.clock.now_ms < held.expires_s

    def _expire_and_renew(self) -> None:
        now_ms, ttl_ms = self._kafka.clock.now_ms, self.terms.claim_ttl_ms
        failed = self._held.failed
        self._held.expire(now_ms)
        self._has_news = self._has_news or self._held.failed < failed
        for held in self._held.due(now_ms, ttl_ms):
            held.expires_s = now_ms + ttl_ms
            said = {"claim_ttl_ms": ttl_ms, "claims": [held.ref]}
            self._append("renew_requested", held.queue_key, said)

    # ------------------------------------------------------------------ presence
    @property
    def _keys(self) -> list[str]:
        keys: list[str] = []
        for queue in self.terms.queues:
            source = source_of(self._kafka, self._codec, queue)
            numbers = [source.number(each) for each in range(source.shards)]
            keys += [mailbox_key(queue, each if len(numbers) > 1 else None) for each in numbers]
        return keys

    @property
    def _room(self) -> int:
        return max(0, self.terms.concurrency - self._held.busy)

    @property
    def _state(self) -> tuple[int, ...]:
        """How far its queues are, and what they have that is ready: it changes with them."""
        self._read_summaries()
        places = [
            (topic(queue), partition)
            for queue in self.terms.queues
            for topic in (worker_queue.topic_of, worker_queue.claims_of)
            for partition in range(self._kafka.partitions(topic(queue)))
        ]
        ends = (span.end for span in self._kafka.spans(places).values())
        return *ends, *self._ready.values()

    def _read_summaries(self) -> None:
        for partition, following in enumerate(self._summaries_read):
            for record in self._kafka.fetch(worker_queue.QUEUES, partition, following, _MANY):
                self._summaries_read[partition] = record.offset + 1
                if header(record.headers, "kind") != "queue_summary" or record.value is None:
                    continue
                said = self._codec.decode(record.value)[1]
                if said["queue"] in self.terms.queues:
                    self._ready[mailbox_key(said["queue"], said["shard"])] = said["ready"]

    @property
    def _must_say(self) -> bool:
        is_old = self._kafka.clock.now_ms - self._said_ms >= BEAT_MS
        return self._has_news or (is_old and self._said != self._state)

    def _say(self) -> None:
        self._said, self._said_ms = self._state, self._kafka.clock.now_ms
        self._has_news = False
        self._seq += 1
        by_partition: dict[int, list[str]] = {}
        for key in self._keys:
            place = partition_of(key.encode(), self._kafka.partitions(REQUESTS))
            by_partition.setdefault(place, []).append(key)
        self._shares.among(tuple(by_partition))
        held: dict[int, list[HeldJob]] = {
            partition: [each for each in self._held if not each.lost and each.queue_key in keys]
            for partition, keys in by_partition.items()
        }
        has = {
            partition: sum(each.state != "failed" for each in claims)
            for partition, claims in held.items()
        }
        now_ms = self._kafka.clock.now_ms
        shares = self._shares.divide(now_ms, free=self._room, ending=0, has=has)
        for partition, keys in by_partition.items():
            said = {
                "deliveries_partition": self._partition,
                "queues": keys,
                "capacity": shares[partition],
                "claims": [each.ref for each in held[partition]],
                "claim_ttl_ms": self.terms.claim_ttl_ms,
                "draining": False,
                "once": False,
                "divided": self._shares.several,
                "seq": self._seq,
                "granted_at_ms": self._granted_at_ms.get(partition, 0),
            }
            self._append("worker_heartbeat", None, said, partition=partition)

    def _register(self) -> None:
        consumer = self.terms.consumer
        for key in self._keys:
            said = {
                "queue": key,
                "consumer_id": self.terms.consumer_id,
                "digest": consumer.digest,
                "gates": consumer.gates,
            }
            self._kafka.append(
                REQUESTS,
                self._codec.encode("consumer_registered", said),
                key=key.encode(),
                headers=[("kind", b"consumer_registered")],
            )

    def _append(
        self,
        kind: str,
        queue_key: str | None,
        said: Mapping[str, Any],
        *,
        partition: int | None = None,
    ) -> None:
        value = {
            "consumer_id": self.terms.consumer_id,
            "incarnation": self.incarnation,
            **said,
        }
        key = f"worker:{self.terms.consumer_id}" if queue_key is None else queue_key
        self._kafka.append(
            REQUESTS,
            self._codec.encode(kind, value),
            key=key.encode(),
            headers=[("kind", kind.encode())],
            partition=partition,
        )
