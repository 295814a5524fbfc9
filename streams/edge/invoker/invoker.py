"""The invoker: runs the handlers that dispatch asks for, and tells it how they ended.

An intent's offset settles when its outcome is in the log.  If that takes more than a second, or
the partition moves to another member, a `running` record takes the outcome's place: dispatch then
holds a lease, and the handler goes on here.  So a rebalance runs nothing twice, and a crash runs
again what had no outcome yet.

| where an intent is | when its partition moves | when the process stops |
|---|---|---|
| waits, nothing after it has begun | dropped: the next owner fetches it | dropped |
| waits, overtaken by a later one | leased, waits on here | `interrupted`: issued again |
| its handler runs | leased, goes on here | goes on for `drain_ms`, then `interrupted` |
| its outcome is not acked yet | waited for | waited for |

A cancel request, or its timeout, ends a handler early (see `streams.edge.executors.runner`).

Invariants: at most `invoker_max_outstanding` handlers run; intents of one trigger start in the
order of their offsets; every begun invocation gets exactly one outcome record, apart from repeats
of the same bytes; a handler cannot end this process, except by never returning.

Source: DESIGN "An invocation", "Backpressure"; SEMANTICS 2.5, 2.8.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from streams.codec import Codec
from streams.core.record import Position
from streams.core.wire import CancelInvocation, Invoke
from streams.edge.executors.call import Call
from streams.edge.executors.loop_watch import LoopWatch
from streams.edge.executors.outcome import INTERRUPTED, Outcome, cancelled, unresolved
from streams.edge.executors.runner import GRACE_S, HandlerRunner
from streams.edge.executors.slots import Slots
from streams.edge.executors.strays import Strays
from streams.edge.invoker.cancels import CancelBook, KafkaCancels
from streams.edge.invoker.changes import Changes
from streams.edge.invoker.execution import Execution, ExecutionKey, call_of, headers_of
from streams.edge.invoker.guard import ends_the_role
from streams.edge.invoker.intake import TOPIC, FetchedIntent, KafkaIntake
from streams.edge.invoker.intents import IntentReader
from streams.edge.invoker.lane import Lane
from streams.edge.invoker.last_words import LastWords
from streams.edge.invoker.lease_book import Word
from streams.edge.invoker.leases import Leases
from streams.edge.invoker.observer import InvokerObserver, Unobserved
from streams.edge.invoker.offsets import OwnedOffsets
from streams.edge.invoker.reporter import Appender, Reporter
from streams.edge.invoker.seams import HandlerSource, Seams
from streams.errors import InvokerStuck
from streams.handler_api import CancelToken
from streams.observe import logs
from streams.settings import Settings

__all__ = ["Invoker"]

_LOG = logs.logger(__name__)

# Ended invocations whose intents may be fetched again after a rebalance whose commit failed.
_RECENT_MAX = 10_000
# Outcomes that may wait for their ack before intake slows down: what an outage of the broker that
# outlasts the session makes another member run again.
_UNACKED_MAX = 1_024
# What acks get for arriving, and the group for answering, when the process stops.
_ACK_WAIT_S = 5.0
_LEAVE_WAIT_S = 10.0


class Invoker:
    """The invoker of one process; made and used inside one event loop.

    Args:    publisher: started before and stopped after the invoker.  seams: for tests.
    """

    name = "invoker"

    def __init__(
        self,
        settings: Settings,
        publisher: Appender,
        codec: Codec,
        handlers: HandlerSource,
        *,
        observer: InvokerObserver | None = None,
        seams: Seams | None = None,
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._observer = Unobserved() if observer is None else observer
        seams = Seams() if seams is None else seams
        self._clock = seams.clock
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self.invoker_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        slots_max = settings.invoker_max_outstanding
        self._intake = KafkaIntake(settings) if seams.intake is None else seams.intake
        cancels = seams.cancels
        self._cancels = KafkaCancels(settings, codec) if cancels is None else cancels
        self.cancelled_before = CancelBook(self._loop.time)
        self._intents = IntentReader(codec, settings.partitions)
        self._reporter = Reporter(publisher, codec, self.invoker_id, self, seams.mailbox)
        strays = Strays(seams.strays_max, self._too_many_strays, self._observer.strays)
        self._runner = HandlerRunner(settings, strays, logging.root.getEffectiveLevel())
        self._watch = LoopWatch(
            running=self._runner.on_loop.running,
            watched=lambda: len(self._runner.on_loop) > 0,
            limit_s=settings.lease_ms / 1_000,
            on_blocked=self._observer.loop_blocked,
            on_stuck=LastWords(
                settings,
                seams.mailbox,
                unended=self._unended,
                word_of=lambda ended, out: self._reporter.word_of(ended, out, self._clock()),
                exit_now=seams.exit_now,
            ),
        )
        self._slots: Slots[Execution] = Slots(slots_max)
        self._leases = Leases(settings.lease_ms, self._reporter.say, self._observer.leases_late)
        self._offsets = OwnedOffsets(TOPIC, self._intake.commit)
        self._held: dict[ExecutionKey, Execution] = {}  # until the outcome is acked
        self._unacked = 0
        self._recent: OrderedDict[ExecutionKey, None] = OrderedDict()
        self._changes = Changes()
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the group and take intents.  Raises BrokerError as the intake does."""
        await self._cancels.start(self)
        await self._intake.start(self)
        self._watch.start()
        _LOG.info("invoker_started", extra={"invoker_id": self.invoker_id})

    async def stop(self) -> None:
        """Leave the group at once, then give running handlers `drain_ms` to end.

        Their tokens flip at once; what has not ended by then is cut off as `interrupted`.
        """
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._drain())
        await asyncio.shield(self._stopping)

    # ------------------------------------------------------------------ intents
    @ends_the_role
    def take(self, intents: Sequence[FetchedIntent]) -> None:
        """Start what was fetched, or let it wait, unless it is or was here already."""
        if self._stopping is not None:
            return  # not noted, so not committed: the next owner starts them
        for fetched in intents:
            lane = self._offsets.received(fetched.partition, fetched.offset)
            intent = self._intents.read(fetched)
            if intent is None:
                self._observer.unusable()
                self._pass_over(lane, fetched)
                continue
            key = intent["dispatch_id"], intent["fence"]
            held = self._held.get(key)
            if held is not None and not held.in_log:
                self._intake.release(len(fetched.value))
                self._place(held, lane, fetched.offset)
            elif held is not None or key in self._recent:
                self._pass_over(lane, fetched)
                self._lease(lane.begins(fetched.offset))
            else:
                self._accept(intent, fetched, lane)

    def _pass_over(self, lane: Lane[Execution], fetched: FetchedIntent) -> None:
        lane.ledger.settled(fetched.offset)
        self._intake.release(len(fetched.value))
        self._offsets.commit_soon()

    def _accept(self, intent: Invoke, fetched: FetchedIntent, lane: Lane[Execution]) -> None:
        position = Position(TOPIC, fetched.partition, fetched.offset)
        execution = Execution(
            dispatch_id=intent["dispatch_id"],
            attempt=intent["attempt"],
            fence=intent["fence"],
            home_partition=intent["home_partition"],
            trigger_id=intent["trigger_id"],
            headers=headers_of(position, fetched.headers),
            size=len(fetched.value),
            intent=intent,
        )
        self._held[execution.key] = execution
        starts = self._slots.offer(execution.trigger_id, execution)
        execution.begun = starts
        self._place(execution, lane, fetched.offset)
        if starts:
            self._start(execution)

    def _place(self, execution: Execution, lane: Lane[Execution], offset: int) -> None:
        """Note where an intent was fetched."""
        execution.places.append((lane, offset))
        if execution.begun or execution.ended:
            self._lease(lane.begins(offset))
        else:
            lane.waits(offset, execution)

    def _lease(self, overtaken: Iterable[Execution]) -> None:
        """Let intents that were overtaken wait under a lease: no other member will fetch them."""
        for execution in overtaken:
            self._leases.started(execution)

    # ------------------------------------------------------------------ executions
    def _start(self, execution: Execution) -> None:
        intent, execution.intent = execution.intent, None
        assert intent is not None, "an execution begins once"
        now_ms = self._clock()
        execution.started_at_ms, execution.started_s = now_ms, self._loop.time()
        self._observer.outstanding(self._slots.running)
        reason = self.cancelled_before.take(execution.key)
        if reason is not None:
            self._end(execution, cancelled(reason))
            return
        handler = self._handlers.resolve(intent["handler"], intent["trigger_id"])
        if handler is None or intent["purpose"] == "unknown":
            self._end(execution, unresolved(intent["handler"]))
            return
        self._observer.started(execution.trigger_id, max(0, now_ms - intent["accepted_at_ms"]))
        self._leases.started(execution)
        token = CancelToken(self._loop.time)
        execution.call = call_of(intent, handler, token, partial(self._end, execution))
        self._runner.start(execution.call)

    def _start_waiting(self, execution: Execution) -> None:
        execution.begun = True
        for lane, offset in execution.places:
            self._lease(lane.begins(offset))
        self._start(execution)

    @ends_the_role
    def _end(self, execution: Execution, outcome: Outcome) -> None:
        """Report an outcome; only the first of an execution counts."""
        if execution.ended:
            return
        execution.ended = True
        self._leases.ended(execution)
        seconds = None if execution.call is None else self._loop.time() - execution.started_s
        self._observer.finished(execution.trigger_id, outcome.outcome, seconds)
        execution.call = None  # it knows us: each would wait for the cycle collector
        if execution.begun:
            self._slots.ended(execution.trigger_id)
            self._observer.outstanding(self._slots.running)
        self._unacked += 1
        if self._unacked <= _UNACKED_MAX:
            self._release(execution)
        self._reporter.report(execution, outcome, self._clock())
        self._changes.notify()
        self._slots.fill(self._start_waiting)  # in this turn of the loop: the next may be far

    def _release(self, execution: Execution) -> None:
        if execution.has_room:
            execution.has_room = False
            self._intake.release(execution.size)

    # ------------------------------------------------------------------ what is in the log
    @ends_the_role
    def outcome_in_log(self, execution: Execution) -> None:
        """Forget an invocation that dispatch knows the end of."""
        del self._held[execution.key]
        self._unacked -= 1
        self._recent[execution.key] = None
        if len(self._recent) > _RECENT_MAX:
            self._recent.popitem(last=False)
        self._release(execution)
        execution.settle()
        self._offsets.commit_soon()
        self._changes.notify()

    @ends_the_role
    def word_in_log(self, word: Word) -> None:
        """Dispatch holds leases of these: their intents need no other owner."""
        for invocation in word.invocations:
            assert isinstance(invocation, Execution), "the book holds executions"
            invocation.settle()
        self._offsets.commit_soon()
        self._changes.notify()

    def word_lost(self) -> None:
        """Say it again soon."""
        self._leases.word_lost()

    # ------------------------------------------------------------------ partitions that move
    def commit_failed(self, partitions: Sequence[int]) -> None:
        """Commit again, as long as the partitions are ours."""
        self._offsets.commit_failed(partitions)

    async def settle(self, partitions: Sequence[int], timeout_s: float) -> Mapping[int, int]:
        """Put a word for all that is here of these partitions into the log, or drop it.

        Returns: where the next owner begins, by partition: after all that was begun here, unless
                 the broker did not ack in time.
        """
        lanes = self._offsets.give_up(partitions)
        ours = list(lanes.values())
        self._drop(ours, [each for lane in ours for each in lane.give_up()])
        self._leases.announce(each for each in self._of(ours) if not each.ended)
        if not await self._changes.until(lambda: all(lane.settled for lane in ours), timeout_s):
            # Their next owner runs these as well: at least once, as promised.
            extra = {"partitions": list(partitions), "intents": len(self._of(ours))}
            _LOG.warning("invoker_unsettled", extra=extra)
        return {
            partition: lane.ledger.next_offset
            for partition, lane in lanes.items()
            if lane.ledger.next_offset is not None
        }

    def lose(self, partitions: Sequence[int]) -> None:
        """Forget offsets that can no longer be committed; handlers go on, fences decide."""
        lanes = list(self._offsets.give_up(partitions).values())
        waiting = (each for each in self._of(lanes) if not each.begun and not each.ended)
        self._drop(lanes, waiting)

    def _of(self, lanes: Collection[Lane[Execution]]) -> list[Execution]:
        """Return the executions that have not settled in these lanes."""
        return [
            execution
            for execution in self._held.values()
            if any(lane in lanes for lane, _ in execution.places)
        ]

    def _drop(self, lanes: Collection[Lane[Execution]], waiting: Iterable[Execution]) -> None:
        """Forget what waits, as if it had not been fetched in these lanes."""
        dropped: set[Execution] = set()
        for execution in waiting:
            execution.places = [place for place in execution.places if place[0] not in lanes]
            if not execution.places:
                dropped.add(execution)
        self._slots.withdraw(dropped)
        for execution in dropped:
            del self._held[execution.key]
            self._leases.ended(execution)
            self._release(execution)

    def fail(self, error: BaseException) -> None:
        """End the role."""
        if not self.failed.done():
            self.failed.set_exception(error)

    # ------------------------------------------------------------------ ending early
    @ends_the_role
    def cancel(self, said: CancelInvocation) -> None:
        """Cancel an invocation, wherever it is here; one that has not come is remembered."""
        key = said["dispatch_id"], said["fence"]
        execution = self._held.get(key)
        if execution is None:
            self.cancelled_before.put(key, said["reason"])
        elif execution.call is not None:
            self._runner.cut(execution.call, cancelled(said["reason"]), "cancelled")
        elif not execution.ended:
            self._slots.withdraw({execution})
            self._end(execution, cancelled(said["reason"]))

    def _too_many_strays(self, count: int) -> None:
        problem = f"{count} handlers were given up and do not end; this process starts anew"
        remedy = 'give them timeouts of their own, or executor = "process"'
        self.fail(InvokerStuck(problem, remedy=remedy))

    # ------------------------------------------------------------------ stopping
    async def _drain(self) -> None:
        deadline_s = self._loop.time() + self._settings.drain_ms / 1_000
        for call in self._calls():
            self._runner.warn(call)
        # First of all another member gets the partitions; ours go on under their leases.
        leaving = self._loop.create_task(self._intake.stop())
        await asyncio.wait([leaving], timeout=_LEAVE_WAIT_S)
        waiting = {each for each in self._unended() if not each.begun}
        self._slots.withdraw(waiting)
        for execution in waiting:
            self._end(execution, INTERRUPTED)
        await self._changes.until(lambda: not self._slots.running, deadline_s - self._loop.time())
        for call in self._calls():
            self._runner.cut(call, INTERRUPTED, "shutdown")
        await self._changes.until(lambda: not self._slots.running, GRACE_S + _ACK_WAIT_S)
        self._watch.stop()
        await self._runner.close()
        if not await self._changes.until(lambda: not self._held, _ACK_WAIT_S):
            _LOG.warning("invoker_unacked", extra={"outcomes": len(self._held)})
        await self._cancels.stop()
        self._reporter.close()
        self._leases.close()
        self._offsets.close()
        _LOG.info("invoker_stopped", extra={"invoker_id": self.invoker_id})

    def _unended(self) -> list[Execution]:
        return [each for each in list(self._held.values()) if not each.ended]

    def _calls(self) -> list[Call]:
        return [each.call for each in self._unended() if each.call is not None]
