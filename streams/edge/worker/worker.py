"""The worker: holds what the scheduler grants it, runs it, and answers.

    jobs_granted → waiting → running (renewed at half its time) → response → ack
                             its gates are asked, if it has any: it waits until they let it start
                          ↘ stop: released                     ↘ failed: runs out, comes again

A worker says once a second, and whenever it matters, what it could take and which claims it has.
It is known by its consumer id, and each start of it by an incarnation: the scheduler gives what an
earlier one held to others.  A process that was stopped for longer than its claims last begins anew
as another incarnation, so that nothing granted meanwhile is run by it.

Invariants: at most `concurrency` handlers run; a claim that was lost is never acked; every job that
began gets a response; a job that is acked has its response in the log.

Source: DESIGN "A job"; SEMANTICS 5.4; law 7.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence

from streams.codec import Codec
from streams.core.record import Position
from streams.core.wire import JobsGranted
from streams.edge.executors.loop_watch import LoopWatch
from streams.edge.executors.outcome import INTERRUPTED
from streams.edge.executors.runner import GRACE_S, HandlerRunner
from streams.edge.executors.strays import STRAYS_MAX, Strays
from streams.edge.invoker.guard import ends_the_role
from streams.edge.invoker.reporter import Appender
from streams.edge.worker.answers import Answered, Answers
from streams.edge.worker.consumer import Consumer
from streams.edge.worker.delivered import value_of
from streams.edge.worker.deliveries import Delivered, Deliveries, KafkaDeliveries
from streams.edge.worker.gate_asks import GateAsks
from streams.edge.worker.held import HeldJob, HeldJobs
from streams.edge.worker.observer import Unobserved, WorkerObserver
from streams.edge.worker.plan import WorkerPlan
from streams.edge.worker.presence import Presence
from streams.edge.worker.response import response_of
from streams.edge.worker.room import Room
from streams.edge.worker.run import Answer, JobRunner
from streams.edge.worker.seams import Seams
from streams.edge.worker.stuck import LastLine
from streams.edge.worker.words import Words, by_queue
from streams.errors import InvokerStuck
from streams.observe import logs
from streams.settings import Settings

__all__ = ["Worker"]

_LOG = logs.logger(__name__)

_ACK_WAIT_S = 5.0
"""What acks get for arriving when the process stops."""


class Worker:
    """An `EdgeService`; made and used inside one event loop.

    Args:    publisher: started before and stopped after the worker.  seams: for tests.
    """

    name = "worker"

    def __init__(
        self,
        settings: Settings,
        publisher: Appender,
        codec: Codec,
        consumer: Consumer,
        plan: WorkerPlan,
        *,
        observer: WorkerObserver | None = None,
        seams: Seams | None = None,
    ) -> None:
        seams = Seams() if seams is None else seams
        self._settings, self._appender, self._codec = settings, publisher, codec
        self._consumer, self.plan = consumer, plan
        self._observer = Unobserved() if observer is None else observer
        self._clock = seams.clock
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self.emptied: asyncio.Future[None] = self._loop.create_future()
        """Resolved when a worker that runs once has done all there is."""
        self.incarnation = secrets.token_hex(8)
        self._ttl_s = plan.claim_ttl_ms / 1_000
        self._deliveries: Deliveries = seams.deliveries or KafkaDeliveries(
            settings, plan.consumer_id
        )
        self._held = HeldJobs()
        self._room = Room(plan.concurrency)
        strays = Strays(STRAYS_MAX, self._too_many_strays, self._observer.strays)
        self._runner = HandlerRunner(settings, strays, logging.root.getEffectiveLevel())
        self._watch = LoopWatch(
            running=self._runner.on_loop.running,
            watched=lambda: len(self._runner.on_loop) > 0,
            limit_s=self._ttl_s,
            on_blocked=self._observer.loop_blocked,
            on_stuck=LastLine(seams.exit_now),
        )
        self._jobs = JobRunner(codec, consumer, self._runner, self._on_answer, self._on_gated)
        self._words: Words | None = None
        self._answers: Answers | None = None
        self._gates: GateAsks | None = None
        self._presence: Presence | None = None
        self._starting = self._start_planned = False
        self._quiet: asyncio.Event = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ life
    async def start(self) -> None:
        """Find the place where grants come, then say that this worker is there.

        Raises: BrokerError.
        """
        await self._deliveries.start(self)
        plan = self.plan
        self._words = words = Words(
            self._appender,
            self._codec,
            plan.consumer_id,
            plan.claim_ttl_ms,
            self._deliveries.request_partitions,
        )
        self._answers = Answers(words, self)
        self._gates = GateAsks(words, self._held, self, self._consumer.digest)
        await self._register(words, self._consumer)
        self._watch.start()
        self._presence = Presence(plan, words, self._deliveries.partition, self)
        self._presence.start()
        extra = {
            "consumer_id": plan.consumer_id,
            "incarnation": self.incarnation,
            "queues": ",".join(plan.queue_keys),
        }
        _LOG.info("worker_started", extra=extra)

    async def adopt(self, consumer: Consumer) -> None:
        """Run jobs that begin from now on by another manifest.  Raises BrokerError."""
        if self._words is not None and self._gates is not None:
            self._gates.registered(consumer.digest)
            await self._register(self._words, consumer)
        self._consumer = consumer
        self._jobs.adopt(consumer)

    async def _register(self, words: Words, consumer: Consumer) -> None:
        for queue_key in self.plan.queue_keys:
            await words.register(queue_key, consumer.digest, consumer.gates)

    async def stop(self) -> None:
        """Take nothing more, release what has not begun, and give handlers `drain_ms` to end.

        Their tokens flip at once; what has not ended by then is cut off and released.
        """
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._drain())
        await asyncio.shield(self._stopping)

    async def _drain(self) -> None:
        answers, presence = self._answers, self._presence
        if answers is None or presence is None:
            await self._deliveries.stop()
            return
        presence.leave()
        self._release(self._held.take_waiting(), "the worker stops")
        for held in self._held:
            if held.call is not None:
                self._runner.warn(held.call)
        if not await self._wait_until_quiet(self._settings.drain_ms / 1_000):
            for held in self._held:
                if held.call is not None:
                    self._runner.cut(held.call, INTERRUPTED, "shutdown")
            await self._wait_until_quiet(2 * GRACE_S)
        answers.flush()
        deadline_s = self._loop.time() + _ACK_WAIT_S
        while not answers.is_empty and self._loop.time() < deadline_s:
            await self._changed(deadline_s - self._loop.time())
        answers.close()
        presence.stop()
        await self._deliveries.stop()
        await self._runner.close()
        self._watch.stop()
        _LOG.info("worker_stopped", extra={"consumer_id": self.plan.consumer_id})

    async def _wait_until_quiet(self, timeout_s: float) -> bool:
        deadline_s = self._loop.time() + timeout_s
        while self._held.running and self._loop.time() < deadline_s:
            await self._changed(deadline_s - self._loop.time())
        return self._held.running == 0

    async def _changed(self, timeout_s: float) -> None:
        """Wait until something ends, for that long at most."""
        self._quiet.clear()
        try:
            await asyncio.wait_for(self._quiet.wait(), max(timeout_s, 0.001))
        except TimeoutError:
            return

    # ------------------------------------------------------------------ grants
    @ends_the_role
    def take(self, delivered: Sequence[Delivered]) -> None:
        """Take what was granted; what was meant for an earlier incarnation is passed over."""
        for each in delivered:
            value = value_of(self._codec, each, self.plan.queue_keys)
            if value is None or value["incarnation"] != self.incarnation:
                continue
            if each.kind == "jobs_granted":
                self._room.round_trip.granted(each.cause, self._loop.time())
                self._grant(value)
            elif each.kind == "gates_answered":
                if self._gates is not None:
                    self._gates.answered(value)
            elif self._presence is not None:
                self._presence.take(each.kind, value)
        self._start_waiting()
        self.look_whether_done()

    def _grant(self, granted: JobsGranted) -> None:
        expires_s = self._loop.time() + min(self._ttl_s, granted["claim_ttl_ms"] / 1_000)
        if self._presence is not None:
            self._presence.granted(granted["queue"], granted["granted_at_ms"])
        if self._gates is not None:
            self._gates.in_force(granted["queue"], granted["gates_digest"])
        for job in granted["jobs"]:
            self._held.grant(granted["queue"], job, expires_s)
        if self._stopping is not None:
            self._release(self._held.take_waiting(), "the worker stops")

    @ends_the_role
    def _start_waiting(self) -> None:
        self._start_planned = False
        if self._starting:
            return  # an answer came before its start returned: the loop below goes on
        self._starting = True
        try:
            while self._held.running < self.plan.concurrency:
                held = self._held.next()
                if held is None:
                    break
                held.started_s = self._loop.time()
                self._jobs.start(held)
        finally:
            self._starting = False

    # ------------------------------------------------------------------ gates
    @ends_the_role
    def _on_gated(self, held: HeldJob, keys: dict[str, str]) -> None:
        assert self._gates is not None, "start comes before any job"
        self._gates.add(held, keys)
        if self._stopping is not None:
            self._release(self._held.take_waiting(), "the worker stops")
        self.admitted()

    def admitted(self) -> None:
        """Start what may start, once for all places that come free in one turn of the loop."""
        if not self._starting and not self._start_planned:
            self._start_planned = True
            self._loop.call_soon(self._start_waiting)
        self._quiet.set()

    def taken_back(self, held: HeldJob, answer: str) -> None:
        """A job is this worker's no more: it waits at a gate, or was skipped by one."""
        if answer == "skipped":
            self._observer.finished(held.queue, answer, self._loop.time() - held.started_s)
        if self._presence is not None:
            self._presence.look()
        self.look_whether_done()

    # ------------------------------------------------------------------ answers
    @ends_the_role
    def _on_answer(self, held: HeldJob, answer: Answer) -> None:
        answers, words = self._answers, self._words
        assert answers is not None, "start comes before any job"
        assert words is not None, "start comes before any job"
        self._held.answer(held)
        held.ended_s = self._loop.time()
        seconds = held.ended_s - held.started_s
        self._room.ended(seconds)
        self._observer.finished(held.queue, answer.outcome, seconds)
        response = response_of(
            held,
            answer,
            consumer_id=self.plan.consumer_id,
            handled_at_ms=self._clock(),
            claim_lost=held.lost or held.ended_s >= held.expires_s,
        )
        hurried = self._held.waiting == 0
        acks = answer.done and not response["claim_lost"]
        answers.add(Answered(held, words.response(response), acks), hurried=hurried)
        if answer.outcome == "interrupted" and not response["claim_lost"]:
            self._release([held], "interrupted")
        self._observer.answered(response)
        self.admitted()

    def still_holds(self, held: HeldJob) -> bool:
        """Whether a claim has neither been lost nor run out by now."""
        return not held.lost and self._loop.time() < held.expires_s

    def acked(self, jobs: Sequence[HeldJob], position: Position) -> None:
        """Note where the ack of jobs stands: the next grant may come of it."""
        self._room.round_trip.acked(jobs, position)

    @ends_the_role
    def answered(self, jobs: Sequence[HeldJob], *, acked: bool) -> None:
        """Forget jobs that are over; one that failed keeps its claim until it runs out."""
        for held in jobs:
            if acked or not self.still_holds(held):  # done, lost, or released
                self._held.drop(held)
            else:
                self._held.fail(held)
                if self._presence is not None:
                    self._presence.say_soon()  # the scheduler counts it until it hears otherwise
        if self._presence is not None:
            self._presence.look()
        self._observer.settled(jobs[0].queue, len(jobs), acked=acked)
        self._quiet.set()
        self.look_whether_done()

    def _release(self, claims: Sequence[HeldJob], reason: str) -> None:
        """Give claims back; should the word be lost, the claims are, by no longer being listed."""
        assert self._words is not None, "start comes before any claim"
        for queue_key, part in by_queue(claims):
            self._words.release(queue_key, self.incarnation, part, reason)
        for held in claims:
            held.lost = True

    # ------------------------------------------------------------------ presence
    @property
    def held(self) -> HeldJobs:
        """Return the claims."""
        return self._held

    @property
    def capacity(self) -> int:
        """Return how many jobs it could take besides what it holds."""
        if self._stopping is not None:
            return 0
        return self._room.capacity(busy=self._held.busy, held=len(self._held))

    def ending_within(self, seconds: float) -> int:
        """Return how many of its places come free in that time, as far as was measured."""
        return min(self._room.ending_within(seconds), self._held.busy)

    @property
    def is_idle(self) -> bool:
        """Whether all that it was granted is answered, and in the log."""
        return self._held.busy == 0 and self._answers is not None and self._answers.is_empty

    @ends_the_role
    def expire(self, now_s: float) -> None:
        """Give up the claims that have run out; handlers that run on are told."""
        if self._gates is not None:
            self._gates.again(now_s)
        lost = self._held.expire(now_s)
        for held in lost:
            extra = {"claim_id": held.claim_id, "queue": held.queue}
            _LOG.warning("worker_claim_lost", extra=extra)
            if held.call is not None:
                held.call.context.cancelled.flip("cancelled")
                if held.call.handler.runs_in == "process":
                    self._runner.on_processes.warn(held.call)
        self._observer.claims_lost(len(lost))

    @ends_the_role
    def begin_anew(self, now_s: float, late_s: float) -> None:
        """Go on as another incarnation: what was granted to this one may be others' by now."""
        for held in self._held:
            held.expires_s = min(held.expires_s, now_s)
        self.expire(now_s)
        self.incarnation = secrets.token_hex(8)
        extra = {"late_ms": int(late_s * 1_000), "incarnation": self.incarnation}
        _LOG.warning("worker_was_stopped", extra=extra)

    def look_whether_done(self) -> None:
        """End a worker that runs once when nothing is left for it."""
        presence = self._presence
        if not self.plan.once or presence is None or self.emptied.done():
            return
        if presence.is_empty and self.is_idle:
            self.emptied.set_result(None)

    # ------------------------------------------------------------------ failure
    def fail(self, error: BaseException) -> None:
        """End the role with an error."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def _too_many_strays(self, count: int) -> None:
        remedy = 'give handlers timeouts that they keep, or `executor = "process"`'
        self.fail(InvokerStuck(f"{count} handlers of jobs do not end", remedy=remedy))
