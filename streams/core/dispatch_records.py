"""The records that dispatch appends, each built in one place.

Source: SEMANTICS 2.7-2.10.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from streams.core.clock import rfc3339
from streams.core.dlq_words import entry_id_of
from streams.core.record import Output, Value
from streams.core.wire import (
    AttemptEntry,
    AttemptRecorded,
    BindingDefinition,
    DlqMoved,
    Invoke,
    LifecycleDispatchFailed,
    LifecycleDispatchStarted,
    LifecycleDispatchSucceeded,
    LifecycleDlqMoved,
    LifecycleInvocationLost,
    LifecycleInvocationReissued,
    LifecycleOutcomeRefused,
    LifecyclePredicateEvaluated,
    LifecycleRetryScheduled,
    OutboxDispatchFailed,
    OutboxDispatchSkipped,
    OutboxDispatchStarted,
    OutboxDispatchSucceeded,
    RetryScheduled,
    RowDispatch,
    TriggerEvent,
    Usage,
)

INVOCATIONS = "trigger.invocations"
ATTEMPTS = "trigger.attempts"
OUTBOX = "trigger.outbox"
DLQ = "trigger.dlq"
LIFECYCLE = "triggers.lifecycle"


class Dispatch(NamedTuple):
    """A dispatch's row with the binding that it runs under."""

    row: RowDispatch
    binding: BindingDefinition

    def output(self, topic: str, kind: str, value: Value) -> Output:
        """Make an output about this dispatch, keyed by its event and carrying its headers."""
        return Output(topic, kind, self.row["event_id"], value, None, headers_of(self.row))


def headers_of(row: RowDispatch, /) -> tuple[tuple[str, str], ...]:
    """Return the headers that follow an event, sorted by name."""
    tenant_id, traceparent = row["tenant_id"], row["traceparent"]
    headers: tuple[tuple[str, str], ...] = () if tenant_id is None else (("tenant_id", tenant_id),)
    return headers if traceparent is None else (*headers, ("traceparent", traceparent))


def attempt_started(dispatch: Dispatch, /) -> tuple[Output, Output]:
    """Say that an attempt starts: lifecycle, then outbox."""
    row, binding = dispatch
    lifecycle: LifecycleDispatchStarted = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt": row["attempt"],
        "handler_kind": binding["handler_kind"],
        "target_uri": binding["target_uri"],
        "replay_of_event_id": row["replay_of_event_id"],
    }
    outbox: OutboxDispatchStarted = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "handler_kind": binding["handler_kind"],
        "target_uri": binding["target_uri"],
        "attempt": row["attempt"],
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return (
        dispatch.output(LIFECYCLE, "DispatchStarted", lifecycle),
        dispatch.output(OUTBOX, "dispatch_started", outbox),
    )


def invoke(
    dispatch: Dispatch, event: TriggerEvent, home_partition: int, timeout_ms: int | None, /
) -> Output:
    """Make the intent for the row's attempt and fence."""
    value = _intent(dispatch, event, home_partition, timeout_ms)
    row = dispatch.row
    return Output(INVOCATIONS, "invoke", row["dispatch_id"], value, None, headers_of(row))


def ask(
    dispatch: Dispatch,
    event: TriggerEvent,
    home_partition: int,
    predicate: str,
    timeout_ms: int | None,
    /,
) -> Output:
    """Make the intent to evaluate a predicate that is a function."""
    row = dispatch.row
    value = _intent(dispatch, event, home_partition, timeout_ms)
    value["attempt_id"] = f"{row['dispatch_id']}.when"
    value["handler"] = predicate
    value["purpose"] = "predicate"
    return Output(INVOCATIONS, "invoke", row["dispatch_id"], value, None, headers_of(row))


def _intent(
    dispatch: Dispatch, event: TriggerEvent, home_partition: int, timeout_ms: int | None
) -> Invoke:
    row, binding = dispatch
    return {
        "dispatch_id": row["dispatch_id"],
        "attempt_id": f"{row['dispatch_id']}.{row['attempt']}",
        "attempt": row["attempt"],
        "fence": row["fence"],
        "home_partition": home_partition,
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "handler": binding["handler"],
        "accepted_at_ms": row["accepted_at_ms"],
        "purpose": "handler",
        "timeout_ms": timeout_ms,
        "replay_of_event_id": row["replay_of_event_id"],
        "event": event,
    }


def attempt_finished(dispatch: Dispatch, entry: AttemptEntry, /) -> Output:
    """Make the record of one finished attempt."""
    row, binding = dispatch
    value: AttemptRecorded = {
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt": row["attempt"],
        "handler_kind": binding["handler_kind"],
        "started_at": rfc3339(entry["started_at_ms"]),
        "completed_at": rfc3339(entry["completed_at_ms"]),
        "outcome": entry["outcome"],
        "error_msg": entry["error"],
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return dispatch.output(ATTEMPTS, "attempt_recorded", value)


def succeeded(dispatch: Dispatch, result: str | None, /) -> tuple[Output, Output]:
    """Say that it ended well: lifecycle, then the outbox' terminal record."""
    row, binding = dispatch
    lifecycle: LifecycleDispatchSucceeded = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt": row["attempt"],
        "handler_kind": binding["handler_kind"],
        "target_uri": binding["target_uri"],
        "result": result,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    outbox: OutboxDispatchSucceeded = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "handler_kind": binding["handler_kind"],
        "target_uri": binding["target_uri"],
        "attempt": row["attempt"],
        "result": result,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return (
        dispatch.output(LIFECYCLE, "DispatchSucceeded", lifecycle),
        dispatch.output(OUTBOX, "dispatch_succeeded", outbox),
    )


def attempt_failed(dispatch: Dispatch, error: str, /) -> tuple[Output, Output]:
    """Say that an attempt failed: lifecycle, then outbox."""
    row, binding = dispatch
    lifecycle: LifecycleDispatchFailed = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt": row["attempt"],
        "handler_kind": binding["handler_kind"],
        "target_uri": binding["target_uri"],
        "error": error,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    outbox: OutboxDispatchFailed = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "handler_kind": binding["handler_kind"],
        "target_uri": binding["target_uri"],
        "attempt": row["attempt"],
        "error": error,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return (
        dispatch.output(LIFECYCLE, "DispatchFailed", lifecycle),
        dispatch.output(OUTBOX, "dispatch_failed", outbox),
    )


def predicate_evaluated(
    dispatch: Dispatch,
    predicate: str,
    verdict: str,
    /,
    *,
    usage: Usage | None = None,
    latency_ms: int = 0,
    strategy: str | None = None,
) -> Output:
    """A predicate was evaluated; `verdict` is `true`, `false` or why it failed.

    `usage` is what it spent, `strategy` what its budget's end means, where it has one.
    """
    row, _ = dispatch
    value: LifecyclePredicateEvaluated = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "predicate": predicate,
        "result": verdict == "true",
        "reason": None if verdict in ("true", "false") else verdict,
        "cost_usd_micros": 0 if usage is None else usage["cost_usd_micros"],
        "tokens": 0 if usage is None else usage["tokens"],
        "latency_ms": latency_ms,
        "cached": False,
        "on_budget_exhausted": strategy,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return dispatch.output(LIFECYCLE, "predicate.evaluated", value)


def skipped(dispatch: Dispatch, stage: str, detail: Mapping[str, str], /) -> Output:
    """The dispatch ended without an attempt: the outbox' terminal record."""
    row, binding = dispatch
    value: OutboxDispatchSkipped = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "handler_kind": binding["handler_kind"],
        "target_uri": binding["target_uri"],
        "skip_stage": stage,
        "detail": json.dumps(dict(detail), sort_keys=True, separators=(",", ":")),
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return dispatch.output(OUTBOX, "dispatch_skipped", value)


def retry_planned(dispatch: Dispatch, delay_ms: int, error: str, /) -> tuple[Output, Output]:
    """Say when the next attempt is: lifecycle, then attempts; `dispatch` is at the failed one."""
    row, _ = dispatch
    lifecycle: LifecycleRetryScheduled = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt": row["attempt"] + 1,
        "delay_ms": delay_ms,
        "error": error,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    attempts: RetryScheduled = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt": row["attempt"] + 1,
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "delay_ms": delay_ms,
        "error": error,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return (
        dispatch.output(LIFECYCLE, "RetryScheduled", lifecycle),
        dispatch.output(ATTEMPTS, "retry_scheduled", attempts),
    )


def dead_lettered(
    dispatch: Dispatch,
    event: TriggerEvent,
    *,
    home_partition: int,
    error: str,
    error_class: str,
    reason: str,
) -> tuple[Output, Output]:
    """Say that it ended undelivered: lifecycle, then the DLQ entry, its terminal record."""
    row, _ = dispatch
    lifecycle: LifecycleDlqMoved = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt_count": len(row["attempts"]),
        "final_error": error,
        "reason": reason,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    entry: DlqMoved = {
        "entry_id": row["dlq_entry_id"] or entry_id_of(home_partition, row["dispatch_id"]),
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "event": event,
        "attempt_count": len(row["attempts"]),
        "final_error": error,
        "error_class": error_class,
        "reason": reason,
        "attempts": row["attempts"],
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return (
        dispatch.output(LIFECYCLE, "DlqMoved", lifecycle),
        dispatch.output(DLQ, "dlq_moved", entry),
    )


def invocation_refused(
    row: RowDispatch | None,
    *,
    dispatch_id: str,
    attempt: int,
    fence: int,
    invoker_id: str,
    outcome: str,
) -> Output:
    """Refuse a stale holder's word, on the record."""
    value: LifecycleOutcomeRefused = {
        "dispatch_id": dispatch_id,
        "attempt": attempt,
        "fence": fence,
        "invoker_id": invoker_id,
        "current_fence": None if row is None else row["fence"],
        "outcome": outcome,
        "reason": "ended" if row is None else "superseded",
    }
    key = dispatch_id if row is None else row["event_id"]
    return Output(
        LIFECYCLE, "OutcomeRefused", key, value, headers=() if row is None else headers_of(row)
    )


def invocation_lost(dispatch: Dispatch, losses: int, /) -> Output:
    """Say that a lease ended without a word."""
    row, _ = dispatch
    value: LifecycleInvocationLost = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt": row["attempt"],
        "fence": row["fence"],
        "invoker_id": row["invoker_id"] or "",
        "losses": losses,
    }
    return dispatch.output(LIFECYCLE, "InvocationLost", value)


def invocation_reissued(dispatch: Dispatch, reason: str, delay_ms: int, /) -> Output:
    """Say that an invoker gave the attempt back."""
    row, _ = dispatch
    value: LifecycleInvocationReissued = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "attempt": row["attempt"],
        "fence": row["fence"],
        "reason": reason,
        "delay_ms": delay_ms,
    }
    return dispatch.output(LIFECYCLE, "InvocationReissued", value)
