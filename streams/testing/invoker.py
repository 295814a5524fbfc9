"""The invoker in memory: runs the user's handlers under the same protocol as the live one.

A handler is called when its intent is fetched; its outcome is appended once its duration in virtual
time has passed.  What runs longer than a second is announced and renewed (`LeaseBook`), offsets are
committed up to what has settled (`OffsetLedger`), and a lost invoker takes its outcomes with it.

Source: DESIGN "An invocation".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from streams.audit.log import Headers, LogRecord
from streams.codec import Codec
from streams.core.wire import (
    InvocationCompleted,
    Invoke,
    InvokePurpose,
    RunningInvocation,
    TriggerEvent,
)
from streams.edge.executors.outcome import (
    Outcome,
    answered,
    cancelled,
    raised,
    timed_out,
    unresolved,
    with_word_of,
)
from streams.edge.handlers import Handlers
from streams.edge.invoker.execution import context_of
from streams.edge.invoker.lease_book import LeaseBook, Word
from streams.edge.invoker.ledger import OffsetLedger
from streams.engine import MAX_RECORD_BYTES
from streams.handler_api import Context, Event, Handler
from streams.testing.memory_kafka import MemoryKafka

CANCELS = "trigger.invocations.cancels"
INVOCATIONS = "trigger.invocations"
DISPATCHES = "trigger.dispatches"
GROUP = "harn.invoker"

Duration = Callable[[Context], int]
"""How long an invocation takes, ms of virtual time."""


class HandlerSource(Protocol):
    """Where references become handlers."""

    def resolve(self, reference: str, trigger_id: str, /) -> Handler | None:
        """Return the handler of that reference, or None when it is not loaded here."""
        ...


def handler_source(
    handlers: Mapping[str, Callable[..., Any]] | HandlerSource | None,
) -> HandlerSource:
    """Return where references become handlers, whatever a test gives.  Raises ValueError."""
    if handlers is None:
        return Handlers({})
    if isinstance(handlers, Mapping):
        return Handlers.of(handlers)
    return handlers


class Run(NamedTuple):
    """One call of a handler: who called it, for what, when (ms), and whether its word got out."""

    invoker_id: str
    context: Context
    fence: int
    started_ms: int


@dataclass(eq=False, slots=True, kw_only=True)
class _Running:
    """An invocation whose outcome is known to us, and to nobody else until `ends_ms`.

    `places` are where its intent was fetched, and not settled yet.
    """

    dispatch_id: str
    attempt: int
    fence: int
    home_partition: int
    headers: list[tuple[str, bytes]]
    outcome: Outcome
    started_ms: int
    ends_ms: int
    in_log: bool = False
    places: list[tuple[OffsetLedger, int]] = field(default_factory=list["tuple[OffsetLedger, int]"])

    def fetched_at(self, ledger: OffsetLedger, offset: int) -> None:
        """Note a place of its intent; it settles once a word of it is in the log."""
        self.places.append((ledger, offset))
        if self.in_log:
            self.settle()

    def settle(self) -> None:
        """Note that its outcome or its `running` record is in the log."""
        self.in_log = True
        for ledger, offset in self.places:
            ledger.settled(offset)
        self.places.clear()


class MemoryInvoker:
    """One member of the invokers' group.  `runs` collects every call of a handler."""

    def __init__(
        self,
        invoker_id: str,
        kafka: MemoryKafka,
        codec: Codec,
        handlers: HandlerSource,
        *,
        duration: Duration,
        lease_ms: int,
        outstanding_max: int,
        runs: list[Run],
    ) -> None:
        self.invoker_id = invoker_id
        self.paused = False
        self._kafka = kafka
        self._codec = codec
        self._handlers = handlers
        self._duration = duration
        self._outstanding_max = outstanding_max
        self._runs = runs
        self._leases = LeaseBook(lease_ms)
        self._running: dict[tuple[str, int], _Running] = {}
        self._ledgers: dict[int, OffsetLedger] = {}
        self._next: dict[int, int] = {}
        # Cancels are heard from the end that they have when an invoker begins.
        self._cancels_read = kafka.spans([(CANCELS, 0)])[CANCELS, 0].end

    # ------------------------------------------------------------------ the group
    def assign(self, partitions: set[int]) -> None:
        """Own exactly these partitions; those that are new start at the group's offset."""
        for partition in set(self._ledgers) - partitions:
            del self._ledgers[partition], self._next[partition]
        new = sorted(partitions - set(self._ledgers))
        offsets = self._kafka.committed(GROUP, INVOCATIONS, new)
        for partition in new:
            self._ledgers[partition] = OffsetLedger()
            self._next[partition] = offsets.get(partition, 0)

    def hand_over(self) -> None:
        """Put a word for everything that runs into the log and commit: a rebalance comes."""
        running = list(self._running.values())
        for word in self._leases.announce(running, self._kafka.clock.now_ms):
            self._say(word)

    # ------------------------------------------------------------------ what it can do
    def next_due_ms(self) -> int | None:
        """Return when it has something to do that only waits for time; None when nothing does."""
        if self.paused or not self._running:
            return None
        due_ms = min(each.ends_ms for each in self._running.values())
        lease_ms = self._leases.next_due_ms()
        return due_ms if lease_ms is None else min(due_ms, lease_ms)

    def has_work(self) -> bool:
        """Whether `work` would do something now."""
        if self.paused:
            return False
        due_ms = self.next_due_ms()
        if due_ms is not None and due_ms <= self._kafka.clock.now_ms:
            return True
        if self._kafka.fetch(CANCELS, 0, self._cancels_read, 1):
            return True
        return len(self._running) < self._outstanding_max and self._ready() is not None

    def _ready(self) -> int | None:
        """Return a partition with an intent to fetch, or None."""
        for partition, offset in self._next.items():
            if self._kafka.fetch(INVOCATIONS, partition, offset, 1):
                return partition
        return None

    def work(self) -> None:
        """Do one thing: hear a cancel, end what has ended, renew leases, or start an intent."""
        now_ms = self._kafka.clock.now_ms
        cancels = self._kafka.fetch(CANCELS, 0, self._cancels_read, 1)
        if cancels:
            self._hear(cancels[0])
            return
        ended = min(self._running.values(), key=lambda each: each.ends_ms, default=None)
        if ended is not None and ended.ends_ms <= now_ms:
            self._end(ended)
            return
        words = self._leases.due(now_ms).words
        for word in words:
            self._say(word)
        partition = self._ready()
        if not words and partition is not None and len(self._running) < self._outstanding_max:
            self._start(partition)

    def _hear(self, record: LogRecord) -> None:
        """End an invocation that is cancelled, if it runs here."""
        self._cancels_read = record.offset + 1
        said: Any = self._codec.decode(record.value or b"")[1]
        running = self._running.get((said["dispatch_id"], said["fence"]))
        if running is not None:
            running.outcome = cancelled(said["reason"])
            self._end(running)

    # ------------------------------------------------------------------ invocations
    def _start(self, partition: int) -> None:
        (record,) = self._kafka.fetch(INVOCATIONS, partition, self._next[partition], 1)
        del self._next[partition]  # behind the others: no partition waits for another's backlog
        self._next[partition] = record.offset + 1
        ledger = self._ledgers[partition]
        ledger.received(record.offset)
        intent: Any = self._codec.decode(record.value or b"")[1]
        running = self._running.get((intent["dispatch_id"], intent["fence"]))
        if running is None:
            running = self._run(intent, record.headers)
        running.fetched_at(ledger, record.offset)
        self._commit()
        if running.ends_ms == running.started_ms:
            self._end(running)

    def _run(self, intent: Invoke, headers: Headers) -> _Running:
        """Call the handler; its word gets out when its time has passed."""
        now_ms = self._kafka.clock.now_ms
        outcome, duration_ms = self._call(intent)
        running = _Running(
            dispatch_id=intent["dispatch_id"],
            attempt=intent["attempt"],
            fence=intent["fence"],
            home_partition=intent["home_partition"],
            headers=[each for each in headers if each[0] not in {"kind", "fold"}],
            outcome=outcome,
            started_ms=now_ms,
            ends_ms=now_ms + duration_ms,
        )
        self._running[running.dispatch_id, running.fence] = running
        self._leases.started(running, now_ms)
        return running

    def _call(self, intent: Invoke) -> tuple[Outcome, int]:
        """Call the handler; return what comes of it, and how long it takes."""
        handler = self._handlers.resolve(intent["handler"], intent["trigger_id"])
        if handler is None:
            return unresolved(intent["handler"]), 0
        context = context_of(intent)
        self._runs.append(Run(self.invoker_id, context, intent["fence"], self._kafka.clock.now_ms))
        outcome = run_now(handler, intent["event"], context, intent["purpose"])
        duration_ms = self._duration(context)
        outcome = with_word_of(context, outcome)
        timeout_ms = intent["timeout_ms"]
        if timeout_ms is not None and duration_ms > timeout_ms:
            return timed_out(timeout_ms)._replace(usage=outcome.usage), timeout_ms
        return outcome, duration_ms

    def _end(self, ended: _Running) -> None:
        del self._running[ended.dispatch_id, ended.fence]
        self._leases.ended(ended)
        word: InvocationCompleted = {
            "dispatch_id": ended.dispatch_id,
            "attempt": ended.attempt,
            "fence": ended.fence,
            "invoker_id": self.invoker_id,
            "outcome": ended.outcome.outcome,
            "result": ended.outcome.result,
            "error": ended.outcome.error,
            "error_class": ended.outcome.error_class,
            "retry_after_ms": ended.outcome.retry_after_ms,
            "usage": ended.outcome.usage,
            "emissions": ended.outcome.emissions,
            "started_at_ms": ended.started_ms,
            "completed_at_ms": self._kafka.clock.now_ms,
        }
        self._kafka.append(
            DISPATCHES,
            self._codec.encode("invocation_completed", word),
            key=ended.dispatch_id.encode(),
            headers=[("kind", b"invocation_completed"), *ended.headers],
            partition=ended.home_partition,
        )
        ended.settle()
        self._commit()

    def _say(self, word: Word) -> None:
        running: list[RunningInvocation] = [
            {"dispatch_id": each.dispatch_id, "attempt": each.attempt, "fence": each.fence}
            for each in word.invocations
        ]
        value = {"invoker_id": self.invoker_id, "running": running}
        self._kafka.append(
            DISPATCHES,
            self._codec.encode("invocations_running", value),
            key=f"invoker:{self.invoker_id}".encode(),
            headers=[("kind", b"invocations_running")],
            partition=word.home_partition,
        )
        for each in word.invocations:
            assert isinstance(each, _Running), "the book holds what runs here"
            each.settle()
        self._commit()

    def _commit(self) -> None:
        for partition, ledger in self._ledgers.items():
            offset = ledger.take_commit()
            if offset is not None:
                self._kafka.commit(GROUP, INVOCATIONS, partition, offset)


def run_now(
    handler: Handler, event: TriggerEvent, context: Context, purpose: InvokePurpose
) -> Outcome:
    """Call a handler to its end, whatever it raises."""
    try:
        result = handler(Event(event), context)
        if handler.is_async:
            result = _completed(result)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
        return raised(error, purpose)
    return answered(purpose, result, MAX_RECORD_BYTES // 3)


def _completed(awaitable: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - the user's value
    """Run an async handler to its end, also when the caller is inside an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(awaitable)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, awaitable).result()
