"""One invocation that this process has taken, from its intent to the ack of its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streams.core import bounds
from streams.core.record import Position
from streams.core.wire import InvocationCompleted, Invoke
from streams.edge.executors.call import Call
from streams.edge.executors.outcome import Outcome
from streams.edge.invoker.lane import Lane
from streams.handler_api import CancelToken, Context, Handler
from streams.handler_emissions import Emissions

__all__ = ["Execution", "ExecutionKey", "call_of", "context_of", "headers_of"]

_FOLLOWERS = frozenset({"tenant_id", "traceparent"})
_FOLLOWER_BYTES_MAX = 4 * bounds.ID_CHARS_MAX
"""What is longer is no tenant's id, nor a trace; it could keep an outcome out of the log."""

ExecutionKey = tuple[str, int]
"""Dispatch id and fence: what makes an intent the same one when it is fetched again."""


@dataclass(eq=False, slots=True, kw_only=True)
class Execution:
    """An invocation here.  Compared by identity: a later fence of the dispatch is another one."""

    dispatch_id: str
    attempt: int
    fence: int
    home_partition: int
    trigger_id: str
    headers: list[tuple[str, bytes]]
    """What the outcome's record carries on: `cause`, and the event's own."""
    size: int
    """Bytes of the intent, which count against the invoker's room."""
    intent: Invoke | None
    """Until it begins."""
    begun: bool = False
    """It has, or had, a slot."""
    started_at_ms: int = 0
    """By the wall clock, for the record."""
    started_s: float = 0.0
    """By the event loop's clock, for measuring."""
    call: Call | None = None
    """The function's, once it was resolved."""
    ended: bool = False
    """Its outcome is decided; whatever the handler still does is of no account."""
    in_log: bool = False
    """Its outcome or its `running` record is acked: no other invoker needs the intent."""
    has_room: bool = True
    """It counts against the invoker's room."""
    places: list[tuple[Lane[Execution], int]] = field(default_factory=list)
    """Where its intent was fetched: once, or again after a rebalance."""

    @property
    def key(self) -> ExecutionKey:
        """Return what makes it the same when its intent is fetched again."""
        return self.dispatch_id, self.fence

    def settle(self) -> None:
        """Note that its outcome or its `running` record is in the log."""
        self.in_log = True
        for lane, offset in self.places:
            lane.ledger.settled(offset)
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
            "usage": outcome.usage,
            "emissions": outcome.emissions,
            "started_at_ms": self.started_at_ms or now_ms,
            "completed_at_ms": now_ms,
        }


def context_of(intent: Invoke, token: CancelToken | None = None) -> Context:
    """Return what the handler is told around the event."""
    return Context(
        attempt=intent["attempt"],
        attempt_id=intent["attempt_id"],
        dispatch_id=intent["dispatch_id"],
        trigger_id=intent["trigger_id"],
        binding_key=intent["binding_key"],
        event_id=intent["event"]["id"],
        replay_of_event_id=intent["replay_of_event_id"],
        cancelled=CancelToken() if token is None else token,
        emissions=Emissions.of(intent["event"], intent["purpose"]),
    )


def call_of(
    intent: Invoke, handler: Handler, token: CancelToken, ended: Callable[[Outcome], None]
) -> Call:
    """Return the call that an intent asks for; `ended` is told its outcome."""
    return Call(
        handler=handler,
        event=intent["event"],
        context=context_of(intent, token),
        purpose=intent["purpose"],
        timeout_ms=intent["timeout_ms"],
        ended=ended,
    )


def headers_of(position: Position, headers: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return an outcome's headers: its cause, and what follows the event everywhere."""
    followers = [
        (name, content)
        for name, content in headers
        if name in _FOLLOWERS and len(content or b"") <= _FOLLOWER_BYTES_MAX
    ]
    return [("cause", str(position).encode()), *followers]
