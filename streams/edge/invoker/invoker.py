"""The invoker: runs the handlers that dispatch asks for, and tells it how they ended.

An intent is started when it arrives and its offset settles when its outcome is in the log; if the
handler still runs after a second, or the partition moves to another member, a `running` record
takes the outcome's place: dispatch then holds a lease, and the handler goes on here.  So a
rebalance runs nothing twice, and a crash runs again what had no outcome yet.

Invariants: at most `invoker_max_outstanding` handlers run; intents of a partition start in the
order of their offsets; every started invocation gets exactly one outcome record, apart from
repeats of the same bytes; a handler cannot end this process, whatever it raises.

Source: DESIGN "An invocation"; SEMANTICS 2.8.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from streams.codec import Codec, DecodeError
from streams.core.wire import Invoke
from streams.edge.invoker.execution import Execution, ExecutionKey, context_of
from streams.edge.invoker.intake import TOPIC, FetchedIntent, Intake, KafkaIntake
from streams.edge.invoker.lease_book import Word
from streams.edge.invoker.leases import Leases
from streams.edge.invoker.ledger import OffsetLedger
from streams.edge.invoker.observer import InvokerObserver, Unobserved
from streams.edge.invoker.offsets import OwnedOffsets
from streams.edge.invoker.outcome import INTERRUPTED, Outcome, raised, returned, unresolved
from streams.edge.invoker.reporter import Appender, Reporter
from streams.edge.invoker.threads import HandlerThreads
from streams.handler_api import Context, Event, Handler, Retryable, Terminal
from streams.settings import Settings

__all__ = ["HandlerSource", "Invoker"]

MAILBOX = "trigger.dispatches"

_LOG = logging.getLogger("harn.invoker")
_HANDLER_LOG = logging.getLogger("harn.handler")

# Ended invocations whose intents may be fetched again after a rebalance whose commit failed.
_RECENT_MAX = 10_000
# Outcomes that wait for their ack beyond the running handlers; then intake slows down.
_UNACKED_MAX = 4_096
# What a cancelled handler gets for its clean-up, and acks for arriving, when the process stops.
_CANCEL_GRACE_S = 1.0
_ACK_WAIT_S = 5.0
_LEAVE_WAIT_S = 10.0
_FORWARDED_HEADERS = frozenset({"tenant_id", "traceparent"})


class HandlerSource(Protocol):
    """Where references become handlers."""

    def resolve(self, reference: str, /) -> Handler | None:
        """Return the handler of that reference, or None when it is not loaded here."""
        ...


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


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
        self._intake = KafkaIntake(settings) if intake is None else intake
        self._reporter = Reporter(publisher, codec, self.invoker_id, self, mailbox)
        self._threads: HandlerThreads[tuple[Execution, Outcome]] = HandlerThreads(
            self._loop, settings.invoker_max_outstanding, self._on_thread_ended
        )
        self._leases = Leases(settings.lease_ms, self._reporter.say, self._observer.leases_late)
        self._offsets = OwnedOffsets(TOPIC, self._intake.commit)
        self._result_bytes_max = settings.max_record_bytes // 3
        self._held: dict[ExecutionKey, Execution] = {}  # until the outcome is acked
        self._recent: OrderedDict[ExecutionKey, None] = OrderedDict()
        self._running = 0
        self._changed: asyncio.Future[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the group and take intents.  Raises BrokerError as the intake does."""
        await self._intake.start(self)
        _LOG.info("invoker_started: %s", self.invoker_id)

    async def stop(self) -> None:
        """Leave the group at once, then give running handlers `drain_ms` to end.

        What has not ended by then is reported `interrupted`, and dispatch issues it again: async
        handlers are cancelled, those on a thread are left to themselves and their result discarded.
        """
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._drain())
        await asyncio.shield(self._stopping)

    # ------------------------------------------------------------------ intents
    def take(self, intents: Sequence[FetchedIntent]) -> None:
        """Start what was fetched, unless it runs here or has run here."""
        if self._stopping is not None:
            return  # not noted, so not committed: the next owner starts them
        for fetched in intents:
            ledger = self._offsets.received(fetched.partition, fetched.offset)
            intent = self._decode(fetched)
            if intent is None:
                self._observer.unusable()
                self._settle_unstarted(ledger, fetched.offset)
                continue
            key = intent["dispatch_id"], intent["fence"]
            held = self._held.get(key)
            if held is not None:
                held.fetched_at(ledger, fetched.offset)
                self._intake.release()
                self._offsets.commit_soon()
            elif key in self._recent:
                self._settle_unstarted(ledger, fetched.offset)
            else:
                self._start(intent, fetched, ledger)

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
        _LOG.error("invoker_unusable: %s/%d/%d: %s", TOPIC, *fetched[:2], reason)
        return None

    def _settle_unstarted(self, ledger: OffsetLedger, offset: int) -> None:
        ledger.settled(offset)
        self._intake.release()
        self._offsets.commit_soon()

    def _start(self, intent: Invoke, fetched: FetchedIntent, ledger: OffsetLedger) -> None:
        now_ms = self._clock()
        execution = Execution(
            dispatch_id=intent["dispatch_id"],
            attempt=intent["attempt"],
            fence=intent["fence"],
            home_partition=intent["home_partition"],
            started_at_ms=now_ms,
            started_s=self._loop.time(),
            headers=_headers(fetched),
        )
        execution.fetched_at(ledger, fetched.offset)
        self._held[execution.key] = execution
        self._running += 1
        self._observer.outstanding(self._running)
        handler = self._handlers.resolve(intent["handler"])
        if handler is None:
            self._end(execution, unresolved(intent["handler"]))
            return
        self._observer.started(max(0, now_ms - intent["accepted_at_ms"]))
        self._leases.started(execution)
        event, context = Event(intent["event"]), context_of(intent)
        if handler.is_async:
            running = self._run(execution, handler, event, context)
            execution.task = self._loop.create_task(running)
        else:
            self._threads.submit(
                partial(_run_on_thread, execution, handler, event, context, self._result_bytes_max)
            )

    # ------------------------------------------------------------------ executions
    async def _run(
        self, execution: Execution, handler: Handler, event: Event, context: Context
    ) -> None:
        """Run an async handler to its outcome."""
        try:
            outcome = returned(await handler(event, context), self._result_bytes_max)
        except GeneratorExit:
            raise  # the loop is gone, and with it everybody who could be told
        except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
            task = execution.task
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                outcome = INTERRUPTED
            else:
                outcome = _failure(context, error)
        self._end(execution, outcome)

    def _on_thread_ended(self, ended: tuple[Execution, Outcome]) -> None:
        self._end(*ended)

    def _end(self, execution: Execution, outcome: Outcome) -> None:
        """Report an outcome; only the first of an execution counts."""
        if execution.ended:
            return
        execution.ended = True
        self._running -= 1
        self._leases.ended(execution)
        self._observer.finished(outcome.outcome, self._loop.time() - execution.started_s)
        self._observer.outstanding(self._running)
        if len(self._held) - self._running <= _UNACKED_MAX:
            self._release(execution)
        self._reporter.report(execution, outcome, self._clock())
        self._notify()

    def _release(self, execution: Execution) -> None:
        if execution.has_room:
            execution.has_room = False
            self._intake.release()

    # ------------------------------------------------------------------ what is in the log
    def outcome_in_log(self, execution: Execution) -> None:
        """Forget an invocation that dispatch knows the end of."""
        del self._held[execution.key]
        self._recent[execution.key] = None
        if len(self._recent) > _RECENT_MAX:
            self._recent.popitem(last=False)
        self._release(execution)
        execution.settle()
        self._offsets.commit_soon()
        self._notify()

    def word_in_log(self, word: Word) -> None:
        """Dispatch holds leases of these: their intents need no other owner."""
        for invocation in word.invocations:
            assert isinstance(invocation, Execution), "the book holds executions"
            invocation.settle()
        self._offsets.commit_soon()
        self._notify()

    def word_lost(self) -> None:
        """Say it again soon."""
        self._leases.word_lost()

    # ------------------------------------------------------------------ offsets and partitions
    def commit_failed(self, partitions: Sequence[int]) -> None:
        """Commit again, as long as the partitions are ours."""
        self._offsets.commit_failed(partitions)

    async def settle(self, partitions: Sequence[int], timeout_s: float) -> Mapping[int, int]:
        """Put a word for everything that runs of these partitions into the log.

        Returns: where the next owner begins, by partition: after all that was started here, unless
                 the broker did not ack in time.
        """
        ledgers = self._offsets.give_up(partitions)
        ours = list(ledgers.values())
        running = [
            execution
            for execution in self._held.values()
            if not execution.ended and any(ledger in ours for ledger, _ in execution.places)
        ]
        self._leases.announce(running)
        await self._wait_until(lambda: not any(each.unsettled for each in ours), timeout_s)
        left = sum(each.unsettled for each in ours)
        if left:
            _LOG.warning("invoker_unsettled: %d intents of %s may run twice", left, partitions)
        return {
            partition: ledger.next_offset
            for partition, ledger in ledgers.items()
            if ledger.next_offset is not None
        }

    def lose(self, partitions: Sequence[int]) -> None:
        """Forget offsets that can no longer be committed; handlers go on, fences decide."""
        self._offsets.give_up(partitions)

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
        await self._wait_until(lambda: self._running == 0, deadline_s - self._loop.time())
        self._interrupt(cancel=True)
        await self._wait_until(self._no_task_runs, _CANCEL_GRACE_S)
        self._interrupt(cancel=False)
        self._threads.stop()
        if not await self._wait_until(lambda: not self._held, _ACK_WAIT_S):
            _LOG.warning("invoker_unacked: %d outcomes", len(self._held))
        self._reporter.close()
        self._leases.close()
        self._offsets.close()
        _LOG.info("invoker_stopped: %s", self.invoker_id)

    def _interrupt(self, *, cancel: bool) -> None:
        """Cancel what has not ended and can be cancelled, or report it interrupted."""
        for execution in [each for each in self._held.values() if not each.ended]:
            if not cancel:
                self._end(execution, INTERRUPTED)
            elif execution.task is not None:
                execution.task.cancel()

    def _no_task_runs(self) -> bool:
        return all(each.ended or each.task is None for each in self._held.values())

    async def _wait_until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Return True as soon as `holds`, False when it does not within `timeout_s`."""
        deadline_s = self._loop.time() + timeout_s
        while not holds():
            left_s = deadline_s - self._loop.time()
            if left_s <= 0:
                return False
            if self._changed is None:
                self._changed = self._loop.create_future()
            await asyncio.wait([self._changed], timeout=left_s)
        return True

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None


def _run_on_thread(
    execution: Execution, handler: Handler, event: Event, context: Context, bytes_max: int
) -> tuple[Execution, Outcome]:
    """Run a plain function to its outcome, unless the process has stopped before its turn came."""
    if execution.ended:
        return execution, INTERRUPTED
    try:
        return execution, returned(handler(event, context), bytes_max)
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
        return execution, _failure(context, error)


def _failure(context: Context, error: BaseException) -> Outcome:
    """Return the outcome of a handler that raised, and tell its author where."""
    outcome = raised(error)
    expected = isinstance(error, Terminal | Retryable)
    _HANDLER_LOG.warning(
        "handler_failed: %s of %s: %s",
        context.attempt_id,
        context.binding_key,
        outcome.error,
        exc_info=None if expected else error,
    )
    return outcome


def _headers(fetched: FetchedIntent) -> list[tuple[str, bytes]]:
    """Return the outcome's headers: its cause, and what follows the event everywhere."""
    cause = f"{TOPIC}/{fetched.partition}/{fetched.offset}".encode()
    followers = [each for each in fetched.headers if each[0] in _FORWARDED_HEADERS]
    return [("cause", cause), *followers]
