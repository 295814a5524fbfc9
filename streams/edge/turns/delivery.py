"""One delivery of a turn on a database, from the queue to the ack: the work of a worker.

    get ─ parse ─ guard ─ claim ─ run ─ finish ─ ack
           │        │       ├ Skip, Expire: ack
           │        │       ├ interrupted by a later turn: cancelled, and acked
           │        │       └ Wait: given back, never acked
           │        └ the session is not free in time: given back
           └ no envelope: to the dead letters

While the turn runs, both claims, the queue's and the record's, are renewed by a thread of their
own, so that a turn may take as long as it likes.  What is lost meanwhile is told to the body by
`Lease.lost`; its end is then refused, and not acked.  A body that raises has failed; one that is
interrupted (not by an Exception) gives the turn back.  When a later turn of the session interrupts
it, the body is told in the same way, within a second; its turn has then been cancelled, unless it
was completed all the same.

Source: seed queue-driven-agent-dispatch, "The model", "Delivery and idempotency guarantees";
SEMANTICS 8.5 to 8.8, 10.1 A1 to A3, 10.2.29.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

from streams.core.turn.claim import Expire, Run, Skip, Wait
from streams.core.turn.envelope import JOB_ID_PREFIX, AgentTurnEnvelope, EnvelopeError, parse_json
from streams.core.turn.policies import interrupted_by
from streams.edge.turns.session_guard import GuardClosed, Hold
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.task_queue import DeliveryId, Item, Taken
from streams.edge.turns.turn_store import Claimant, Progress, Status, TurnRecord
from streams.errors import TaskQueueUnavailable
from streams.observe import logs

__all__ = [
    "LOOK_EVERY_S",
    "RENEW_EVERY_S",
    "WAIT_MS_MAX",
    "Body",
    "Deliveries",
    "Ended",
    "Lease",
    "Outcome",
]

RENEW_EVERY_S = 30.0
"""A twentieth of the time that a claim of the queue lasts."""

LOOK_EVERY_S = 1.0
"""How soon a body hears that its turn was interrupted: one small query for each that runs."""

WAIT_MS_MAX = 30_000
"""How long a turn that another worker runs is left alone before it is looked at again."""

_NOTHING = "its goal or task is not there"
_GUARD_WITHIN_S = 30.0
_FINISH_TRIES = 120
_FINISH_AGAIN_S = 0.5
_TELL_EVERY = 20
"""Of so many failures in a row of one turn the first is told: each turn that runs has its own."""

_LOG = logs.logger(__name__)


class Outcome(StrEnum):
    """What became of a delivery."""

    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXPIRED = "expired"
    INTERRUPTED = "interrupted"
    """A later turn of its session took its place."""
    WAITING = "waiting"
    """Another worker has it: it was given back."""
    BURIED = "buried"
    """It is no turn: it is among the dead letters."""
    LOST = "lost"
    """The claim was taken over while it ran: nothing was written, and nothing acked."""


class Ended(NamedTuple):
    """How a body ended: completed, failed, cancelled or paused.

    `progress` has the last iteration of a goal, when it was not written before; `says` writes the
    result into the session.
    """

    status: Status
    result: str | None = None
    error: str | None = None
    progress: Progress | None = None
    says: bool = False


class Lease:
    """What a body has of its claim.

    Args: envelope: of the turn.
    """

    def __init__(self, turns: SqlTurns, record: TurnRecord, envelope: AgentTurnEnvelope) -> None:
        self._turns = turns
        self._record = record
        self.envelope = envelope
        self.lost = threading.Event()
        """Set once the body is to end at once: another worker may run the turn, so that what this
        one does counts no more, or it was interrupted."""
        self.interrupted_by: str | None = None
        """The job of the turn that interrupted it."""
        self.on_lost: Callable[[], object] = lambda: None
        """Called, on any thread, when that is set."""

    def iterated(self, progress: Progress) -> bool:
        """Write how far the turn is; false when the claim was lost.

        Raises: TaskQueueUnavailable.
        """
        record = self._record
        if not self._turns.store.iterate(record.record_id, record.fence, progress):
            self._lose()
        return not self.lost.is_set()

    def look(self, delivery: DeliveryId) -> None:
        """Look whether a later turn has interrupted this one."""
        self.interrupted_by = self._turns.queue.interrupted_by(delivery)
        if self.interrupted_by is not None:
            self._lose()

    def renew(self, delivery: DeliveryId, hold: Hold) -> None:
        """Renew both claims, and look whether all of it is still held."""
        held = (
            self._turns.queue.renew(delivery)
            and self._turns.store.renew(self._record.record_id, self._record.fence)
            and not hold.lost()
        )
        if not held:
            self._lose()

    def _lose(self) -> None:
        self.lost.set()
        self.on_lost()


Body = Callable[[TurnRecord, Lease], Ended]


def _envelope(delivery: DeliveryId, item: Item) -> AgentTurnEnvelope:
    """Read an item; what its envelope leaves out follows from where it stands in the queue."""
    place, _, _ = delivery.partition(".")
    return parse_json(json.dumps(item).encode(), job_id=f"{JOB_ID_PREFIX}{place}", enqueued_at_ms=0)


class Deliveries:
    """The turns of one worker, one at a time; `run` is what executes a record.

    Args: guard_within_s: how long a session that another worker holds is waited for.
          look_every_s: how often it is looked whether what runs was interrupted.
    """

    def __init__(
        self,
        turns: SqlTurns,
        claimant: Claimant,
        run: Body,
        *,
        renew_every_s: float = RENEW_EVERY_S,
        look_every_s: float = LOOK_EVERY_S,
        guard_within_s: float = _GUARD_WITHIN_S,
    ) -> None:
        self._turns = turns
        self._claimant = claimant
        self._run = run
        self._renew_every_s = renew_every_s
        self._look_every_s = look_every_s
        self._guard_within_s = guard_within_s
        self._outage = threading.Event()  # never set: waited on while the database is away

    def next(self) -> Outcome | None:
        """Take one turn and see it through; None when there is none.

        Raises: TaskQueueUnavailable; the turn comes again.
        """
        found = self.take()
        return None if found is None else self.see_through(found)

    def take(self) -> Taken | None:
        """Take one turn, to be seen through; None when there is none.

        Raises: TaskQueueUnavailable.
        """
        return self._turns.queue.take()

    def see_through(self, found: Taken, /) -> Outcome:
        """Do all that a turn needs, up to its ack.

        Raises: TaskQueueUnavailable; the turn comes again.
        """
        delivery = found.delivery
        try:
            envelope = _envelope(delivery, found.item)
        except EnvelopeError as error:
            _LOG.warning("turn_buried", extra={"delivery": delivery, "reason": str(error)})
            self._turns.queue.bury(delivery, str(error))
            return Outcome.BURIED
        try:
            with self._turns.guard.hold(envelope.session_id, within_s=self._guard_within_s) as hold:
                return self._guarded(found, envelope, hold)
        except GuardClosed:
            self._turns.queue.release(delivery)
            return Outcome.WAITING

    def _guarded(self, found: Taken, envelope: AgentTurnEnvelope, hold: Hold) -> Outcome:
        delivery, store = found.delivery, self._turns.store
        if found.interrupted_by is None:
            answer = store.claim(envelope, self._claimant)
        else:
            answer = store.cancel(envelope, interrupted_by(found.interrupted_by))
        match answer.decision:
            case Wait():
                delay_ms = min(answer.retry_after_ms, WAIT_MS_MAX)
                self._turns.queue.release(delivery, delay_ms=delay_ms)
                return Outcome.WAITING
            case Skip(reason):
                outcome = Outcome.SKIPPED
                if reason == "unknown_record":
                    extra = {"delivery": delivery, "job_id": envelope.job_id}
                    extra |= {"record": envelope.payload_ref, "reason": _NOTHING}
                    _LOG.warning("turn_without_record", extra=extra)
            case Run() | Expire() if found.interrupted_by is not None:
                outcome = Outcome.INTERRUPTED
            case Expire():
                outcome = Outcome.EXPIRED
            case Run():
                assert answer.record is not None
                lease = Lease(self._turns, answer.record, envelope)
                outcome = self._executed(delivery, answer.record, lease, hold)
        if outcome is not Outcome.LOST:
            self._acked(delivery)
        return outcome

    def _executed(
        self, delivery: DeliveryId, record: TurnRecord, lease: Lease, hold: Hold
    ) -> Outcome:
        extra = {"record": record.record_id, "session": record.session_id}
        try:
            with self._renewed(delivery, lease, hold):
                ended = self._run(record, lease)
        except Exception as error:  # noqa: BLE001 - whatever a body raises is its failure
            if lease.interrupted_by is None:
                _LOG.warning("turn_failed", exc_info=True, extra=extra)
            ended = Ended(Status.FAILED, error=f"{type(error).__name__}: {error}")
        except BaseException as error:
            if lease.interrupted_by is None or not isinstance(error, asyncio.CancelledError):
                with contextlib.suppress(TaskQueueUnavailable):
                    self._turns.store.release(record.record_id, record.fence)
                    self._turns.queue.release(delivery)
                raise
            ended = Ended(Status.CANCELLED)
        # What is done is done, though it was told to end.
        interrupted = lease.interrupted_by if ended.status is not Status.COMPLETED else None
        if interrupted is not None:
            ended = Ended(Status.CANCELLED, error=interrupted_by(interrupted))
        if not self._written(record, ended):
            _LOG.warning("turn_claim_lost", extra=extra)
            return Outcome.LOST
        if interrupted is not None:
            return Outcome.INTERRUPTED
        return Outcome.FAILED if ended.status is Status.FAILED else Outcome.COMPLETED

    def _written(self, record: TurnRecord, ended: Ended) -> bool:
        """Write a turn's end; an outage of a while must not make it run once more.

        Raises: TaskQueueUnavailable, when it lasts.
        """
        for number in range(_FINISH_TRIES):
            try:
                return self._turns.store.finish(
                    record.record_id,
                    record.fence,
                    ended.status,
                    result=ended.result,
                    error=ended.error,
                    progress=ended.progress,
                    says=ended.says,
                ) or self._was_written(record)
            except TaskQueueUnavailable as error:
                if number == _FINISH_TRIES - 1 or not error.retryable:
                    raise
                if number % _TELL_EVERY == 0:
                    extra = {"record": record.record_id, "reason": str(error)}
                    _LOG.warning("turn_not_written", extra=extra)
                self._outage.wait(_FINISH_AGAIN_S)
        raise AssertionError("the last try returns or raises")

    def _was_written(self, record: TurnRecord) -> bool:
        """Whether an earlier try took effect, though its answer was lost."""
        found = self._turns.store.read(record.record_id)
        return (
            found is not None
            and found.fence == record.fence
            and found.executed_by == record.claimed_by
        )

    def _acked(self, delivery: DeliveryId) -> None:
        """Ack what has ended durably; unacked it comes again, and is skipped."""
        try:
            self._turns.queue.ack(delivery)
        except TaskQueueUnavailable as error:
            _LOG.warning("turn_not_acked", extra={"delivery": delivery, "reason": str(error)})

    @contextmanager
    def _renewed(self, delivery: DeliveryId, lease: Lease, hold: Hold) -> Iterator[None]:
        """Renew the claims of a turn for the block."""
        over = threading.Event()
        every_s = min(self._look_every_s, self._renew_every_s)

        def work() -> None:
            renewed_s = time.monotonic()
            failures = 0
            while not over.wait(every_s) and not lease.lost.is_set():
                try:
                    lease.look(delivery)
                    if time.monotonic() - renewed_s >= self._renew_every_s:
                        lease.renew(delivery, hold)
                        renewed_s = time.monotonic()
                    failures = 0
                except TaskQueueUnavailable as error:
                    # The claims outlast many of these; the next renewal finds out.
                    if failures % _TELL_EVERY == 0:
                        _LOG.warning("turn_not_renewed", extra={"reason": str(error)})
                    failures += 1

        thread = threading.Thread(target=work, name=f"renew {delivery}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
