"""The small interface between agent turns and what carries them.

Whoever takes an item holds its claim until it acks, releases or buries it, or does none of these
for `VISIBILITY_MS`: then it is there for others.  So an item is delivered at least once.  Items of
one session come one after another, in the order in which they were put: the next one is there when
the one before it has been acked or buried.

Source: seed queue-driven-agent-dispatch, "The model", "Delivery and idempotency guarantees";
SEMANTICS 8.4, 10.1 A1 and A2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NewType, Protocol, runtime_checkable

from streams.core.turn.envelope import ENVELOPE_BYTES_MAX
from streams.core.turn.policies import rejected_for
from streams.errors import HarnError

__all__ = [
    "DEPTH_MAX",
    "ITEM_BYTES_MAX",
    "VISIBILITY_MS",
    "ClaimedQueue",
    "DeadLetter",
    "DeliveryId",
    "Item",
    "Taken",
    "TaskQueue",
    "TurnRejected",
]

VISIBILITY_MS = 600_000
"""A claim that is neither acked nor renewed for longer is presumed dead."""

DEPTH_MAX = 100_000
"""Items that a queue holds, claimed ones included; more are refused."""

ITEM_BYTES_MAX = 3 * ENVELOPE_BYTES_MAX
"""Of an item as ASCII: the longest envelope, all of it escaped."""

Item = Mapping[str, Any]
"""A JSON object, such as the fields of an `AgentTurnEnvelope`."""

DeliveryId = NewType("DeliveryId", str)
"""One delivery of an item: another delivery of the same item has another id."""


class TurnRejected(HarnError):  # noqa: N818 - an answer, which its `when_busy` asked for
    """A turn was not appended since its session is busy; `job_id` is of the turn in its way."""

    def __init__(self, job_id: str) -> None:
        super().__init__(rejected_for(job_id))
        self.job_id = job_id


class Taken(NamedTuple):
    """A claimed item."""

    delivery: DeliveryId
    item: Item
    interrupted_by: str | None
    """The job of the turn that interrupted it: it is to end, and not to run."""


class DeadLetter(NamedTuple):
    """An item that cannot be processed, kept for people."""

    text: str
    """The item as it was queued."""
    error: str
    deliveries: int
    buried_at_ms: int


@runtime_checkable
class TaskQueue(Protocol):
    """What carries turns.  Every method raises TaskQueueUnavailable when it cannot be reached."""

    backend: str
    """`kafka`, `postgres` or `sqlite`: the label of the metrics."""

    def put(self, item: Item, /) -> None:
        """Append an item; on return it is durable.

        Its `when_busy` is applied in the same step: `interrupt` marks the unfinished turns of its
        session that are in its way, which makes them end before it is delivered.

        Raises: ValueError, when it is no JSON object or is too large.  TaskQueueFull.
                TurnRejected, by `reject`: a turn is in its way.
        """
        ...

    def get(self) -> tuple[DeliveryId, Item] | None:
        """Claim the oldest item whose session has none under way; None when there is none."""
        ...

    def ack(self, delivery: DeliveryId, /) -> bool:
        """Remove an item for good; false when the claim had been lost to somebody else.

        To be called after what came of the item is durable.
        """
        ...

    def get_queue_size(self) -> int:
        """Count the items that have not been acked, claimed ones included."""
        ...


@runtime_checkable
class ClaimedQueue(TaskQueue, Protocol):
    """A queue whose claims can be prolonged and given back; Kafka has its group for this."""

    def take(self) -> Taken | None:
        """Claim as `get` does, and say whether the item was interrupted while it waited."""
        ...

    def interrupted_by(self, delivery: DeliveryId, /) -> str | None:
        """Return the job of the turn that interrupted a claimed item; None while none did."""
        ...

    def renew(self, delivery: DeliveryId, /) -> bool:
        """Start the time of a claim anew; false when it has been lost to somebody else."""
        ...

    def release(self, delivery: DeliveryId, /, *, delay_ms: int = 0) -> bool:
        """Give an item back, to be delivered in `delay_ms` at the earliest; false when it was lost.

        What a worker does that finds the record of a turn claimed by another one: the turn is
        neither done nor to be run here, and must not be acked.
        """
        ...

    def bury(self, delivery: DeliveryId, error: str, /) -> bool:
        """Move an item that can never be processed to the dead letters; false when it was lost."""
        ...

    def dead_letters(self, limit: int = 100, /) -> list[DeadLetter]:
        """Return the newest dead letters, newest first."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...
