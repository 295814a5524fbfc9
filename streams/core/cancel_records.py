"""The records that cancelling appends, each built in one place.

Source: SEMANTICS 2.5; DESIGN 3.
"""

from __future__ import annotations

from streams.core.dispatch_records import LIFECYCLE, OUTBOX, Dispatch, headers_of
from streams.core.record import Output
from streams.core.wire import (
    CancelInvocation,
    LifecycleDispatchCancelled,
    OutboxDispatchCancelled,
    RowDispatch,
)

CANCELS = "trigger.invocations.cancels"


def cancel_invocation(row: RowDispatch, reason: str, home_partition: int, /) -> Output:
    """Make the intent that stops the row's attempt, wherever it runs."""
    value: CancelInvocation = {
        "dispatch_id": row["dispatch_id"],
        "attempt": row["attempt"],
        "fence": row["fence"],
        "home_partition": home_partition,
        "reason": reason,
    }
    return Output(CANCELS, "cancel_invocation", row["dispatch_id"], value, headers=headers_of(row))


def cancelled(dispatch: Dispatch, reason: str, /) -> tuple[Output, Output]:
    """Say that it ended because somebody cancelled it: lifecycle, then the terminal record."""
    row, binding = dispatch
    lifecycle: LifecycleDispatchCancelled = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt_count": len(row["attempts"]),
        "error": reason,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    outbox: OutboxDispatchCancelled = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "handler_kind": binding["handler_kind"],
        "target_uri": binding["target_uri"],
        "attempt": len(row["attempts"]),
        "error": reason,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return (
        dispatch.output(LIFECYCLE, "DispatchCancelled", lifecycle),
        dispatch.output(OUTBOX, "dispatch_cancelled", outbox),
    )
