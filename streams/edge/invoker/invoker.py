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

Invariants: at most `invoker_max_outstanding` handlers run; intents of one trigger start in the
order of their offsets; every begun invocation gets exactly one outcome record, apart from repeats
of the same bytes; a handler cannot end this process, whatever it raises.

Source: DESIGN "An invocation", "Backpressure"; SEMANTICS 2.8.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol

from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.core.wire import Invoke
from streams.edge.invoker.changes import Changes
from streams.edge.invoker.execution import Execution, ExecutionKey, headers_of
from streams.edge.invoker.intake import TOPIC, FetchedIntent, Intake, KafkaIntake
from streams.edge.invoker.lane import Lane
from streams.edge.invoker.lease_book import Word
from streams.edge.invoker.leases import Leases
from streams.edge.invoker.observer import InvokerObserver, Unobserved
from streams.edge.invoker.offsets import OwnedOffsets
from streams.edge.invoker.outcome import INTERRUPTED, Outcome, unresolved
from streams.edge.invoker.reporter import Appender, Reporter
from streams.edge.invoker.runner import HandlerRunner
from streams.edge.invoker.slots import Slots
from streams.handler_api import Handler
from streams.observe import logs
from streams.settings import Settings

__all__ = ["HandlerSource", "Invoker"]

MAILBOX = "trigger.dispatches"

_LOG = logs.logger(__name__)

P = ParamSpec("P")

# Ended invocations whose intents may be fetched again after a rebalance whose commit failed.
_RECENT_MAX = 10_000
# Outcomes that may wait for their ack before intake slows down: what an outage of the broker that
# outlasts the session makes another member run again.
_UNACKED_MAX = 1_024
# What a cancelled handler gets for its clean-up, and acks for arriving, when the process stops.
_CANCEL_GRACE_S = 1.0
_ACK_WAIT_S = 5.0
_LEAVE_WAIT_S = 10.0


class HandlerSource(Protocol):
    """Where references become handlers."""

    def resolve(self, reference: str, /) -> Handler | None:
        """Return the handler of that reference, or None when it is not loaded here."""
        ...


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _ends_the_role(
    method: Callable[Concatenate[Invoker, P], None],
) -> Callable[Concatenate[Invoker, P], None]:
    """Let an exception in `method`, a bug, fail the service: the loop would only log it."""

    @functools.wraps(method)
    def guarded(self: Invoker, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except BaseException as error:
            self.fail(error)
            raise

    return guarded


class Invoker:
    """The invoker of one process; made and used inside one event loop.

    Args:    publisher: started before and stopped after the invoker.  clock: wall time, ms.
             intake, mailbox: where intents come from and outcomes go; others in tests only.
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
        clock: Callable[[], int] = _wall_ms,
        intake: Intake | None = None,
        mailbox: str = MAILBOX,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._handlers = handlers
        self._observer = Unobserved() if observer is None else observer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self.invoker_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        slots_max = settings.invoker_max_outstanding
        self._intake = KafkaIntake(settings) if intake is None else intake
        self._reporter = Reporter(publisher, codec, self.invoker_id, self, mailbox)
        self._runner = HandlerRunner(slots_max, settings.max_record_bytes // 3, self._end)
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
        await self._intake.start(self)
        _LOG.info("invoker_started", extra={"invoker_id": self.invoker_id})

    async def stop(self) -> None:
        """Leave the group at once, then give running handlers `drain_ms` to end.

        What has not ended by then is reported `interrupted`, and dispatch issues it again: async
        handlers are cancelled, those on a thread are left to themselves and their result discarded.
        """
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._drain())
        await asyncio.shield(self._stopping)

    # ------------------------------------------------------------------ intents
    @_ends_the_role
    def take(self, intents: Sequence[FetchedIntent]) -> None:
        """Start what was fetched, or let it wait, unless it is or was here already."""
        if self._stopping is not None:
            return  # not noted, so not committed: the next owner starts them
        for fetched in intents:
            lane = self._offsets.received(fetched.partition, fetched.offset)
            intent = self._decode(fetched)
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

    def _decode(self, fetched: FetchedIntent) -> Invoke | None:
        """Return the intent; None, and a line in the log, for what is none."""
        try:
            schema, value = self._codec.decode(fetched.value)
        except DecodeError as error:
            reason = str(error)
        else:
            if schema == "invoke":
                intent: Any = value
                return intent
            reason = f"schema {schema!r}, expected 'invoke'"
        position = Position(TOPIC, fetched.partition, fetched.offset)
        _LOG.error("invoker_unusable_intent", extra={"position": str(position), "reason": reason})
        return None

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
        handler = self._handlers.resolve(intent["handler"])
        if handler is None:
            self._end(execution, unresolved(intent["handler"]))
            return
        self._observer.started(max(0, now_ms - intent["accepted_at_ms"]))
        self._leases.started(execution)
        self._runner.start(execution, handler, intent)

    @_ends_the_role
    def _start_waiting(self) -> None:
        while (execution := self._slots.next()) is not None:
            execution.begun = True
            for lane, offset in execution.places:
                self._lease(lane.begins(offset))
            self._start(execution)

    @_ends_the_role
    def _end(self, execution: Execution, outcome: Outcome) -> None:
        """Report an outcome; only the first of an execution counts."""
        if execution.ended:
            return
        execution.ended = True
        self._leases.ended(execution)
        seconds = self._loop.time() - execution.started_s if execution.begun else 0.0
        self._observer.finished(outcome.outcome, seconds)
        if execution.begun:
            self._slots.ended(execution.trigger_id)
            self._observer.outstanding(self._slots.running)
        self._unacked += 1
        if self._unacked <= _UNACKED_MAX:
            self._release(execution)
        self._reporter.report(execution, outcome, self._clock())
        self._changes.notify()
        if self._slots.waiting:
            # From the loop, not from here: what starts may end at once, and so on.
            self._loop.call_soon(self._start_waiting)

    def _release(self, execution: Execution) -> None:
        if execution.has_room:
            execution.has_room = False
            self._intake.release(execution.size)

    # ------------------------------------------------------------------ what is in the log
    @_ends_the_role
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

    @_ends_the_role
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

    # ------------------------------------------------------------------ stopping
    async def _drain(self) -> None:
        deadline_s = self._loop.time() + self._settings.drain_ms / 1_000
        # First of all another member gets the partitions; ours go on under their leases.
        leaving = self._loop.create_task(self._intake.stop())
        await asyncio.wait([leaving], timeout=_LEAVE_WAIT_S)
        waiting = {each for each in self._unended() if not each.begun}
        self._slots.withdraw(waiting)
        for execution in waiting:
            self._end(execution, INTERRUPTED)
        await self._changes.until(lambda: not self._slots.running, deadline_s - self._loop.time())
        for execution in self._unended():
            if execution.task is not None:
                execution.task.cancel()
        await self._changes.until(self._no_task_runs, _CANCEL_GRACE_S)
        for execution in self._unended():
            self._end(execution, INTERRUPTED)
        self._runner.stop()
        if not await self._changes.until(lambda: not self._held, _ACK_WAIT_S):
            _LOG.warning("invoker_unacked", extra={"outcomes": len(self._held)})
        self._reporter.close()
        self._leases.close()
        self._offsets.close()
        _LOG.info("invoker_stopped", extra={"invoker_id": self.invoker_id})

    def _unended(self) -> list[Execution]:
        return [each for each in self._held.values() if not each.ended]

    def _no_task_runs(self) -> bool:
        return all(each.task is None for each in self._unended())
