"""One invocation that this process has taken, from its intent to the ack of its outcome."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from streams.core.wire import InvocationCompleted, Invoke
from streams.edge.invoker.ledger import OffsetLedger
from streams.edge.invoker.outcome import Outcome
from streams.handler_api import Context

__all__ = ["Execution", "ExecutionKey"]

ExecutionKey = tuple[str, int]
"""Dispatch id and fence: what makes an intent the same one when it is fetched again."""


@dataclass(eq=False, slots=True, kw_only=True)
class Execution:
    """An invocation here.  Compared by identity: a later fence of the dispatch is another one."""

    dispatch_id: str
    attempt: int
    fence: int
    home_partition: int
    started_at_ms: int
    """By the wall clock, for the record."""
    started_s: float
    """By the event loop's clock, for measuring."""
    headers: list[tuple[str, bytes]]
    """What the outcome's record carries on: `cause`, and the event's own."""
    task: asyncio.Task[None] | None = None
    """Runs an async handler."""
    ended: bool = False
    """Its outcome is decided; whatever the handler still does is of no account."""
    in_log: bool = False
    """Its outcome or its `running` record is acked: no other invoker needs the intent."""
    interrupted: bool = False
    """Its task was cancelled because the process stops."""
    has_room: bool = True
    """It counts against the invoker's bound."""
    places: list[tuple[OffsetLedger, int]] = field(default_factory=list)
    """Where its intent was fetched: once, or again after a rebalance."""

    @property
    def key(self) -> ExecutionKey:
        """Return what makes it the same when its intent is fetched again."""
        return self.dispatch_id, self.fence

    def fetched_at(self, ledger: OffsetLedger, offset: int) -> None:
        """Note a place of its intent; it settles with the others, or at once."""
        if self.in_log:
            ledger.settled(offset)
        else:
            self.places.append((ledger, offset))

    def settle(self) -> None:
        """Note that its outcome or its `running` record is in the log."""
        self.in_log = True
        for ledger, offset in self.places:
            ledger.settled(offset)
        self.places.clear()

    def completed(self, outcome: Outcome, invoker_id: str, now_ms: int) -> InvocationCompleted:
        """Return the record that says how it ended."""
        return {
            "dispatch_id": self.dispatch_id,
            "attempt": self.attempt,
            "fence": self.fence,
            "invoker_id": invoker_id,
            "outcome": outcome.outcome,
            "result": outcome.result,
            "error": outcome.error,
            "error_class": outcome.error_class,
            "retry_after_ms": outcome.retry_after_ms,
            "started_at_ms": self.started_at_ms,
            "completed_at_ms": now_ms,
        }


def context_of(intent: Invoke) -> Context:
    """Return what the handler is told around the event."""
    return Context(
        attempt=intent["attempt"],
        attempt_id=intent["attempt_id"],
        dispatch_id=intent["dispatch_id"],
        trigger_id=intent["trigger_id"],
        binding_key=intent["binding_key"],
        event_id=intent["event"]["id"],
        replay_of_event_id=intent["replay_of_event_id"],
    )
