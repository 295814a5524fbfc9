"""A dispatch partition under revision 1, and the words that arrive in it."""

from __future__ import annotations

from typing import Any

from streams.core.wire import (
    ErrorClass,
    EventMatched,
    InvocationCompleted,
    InvocationOutcome,
    InvocationsRunning,
    RetryPolicy,
    TriggerEvent,
)
from streams.testing import event, policy, retry_policy
from tests.support.revisions import revision, versioned
from tests.support.stage_log import Out, StageLog

LEASE_MS = 15_000


def matched(
    dispatch_id: str = "d1",
    *,
    binding_key: str = "triage@v1",
    found: TriggerEvent | None = None,
    replay_of_event_id: str | None = None,
    dlq_entry_id: str | None = None,
) -> EventMatched:
    """The inbox' word that a binding takes an event."""
    return {
        "dispatch_id": dispatch_id,
        "trigger_id": binding_key.partition("@")[0],
        "binding_key": binding_key,
        "accepted_at_ms": 1,
        "replay_of_event_id": replay_of_event_id,
        "dlq_entry_id": dlq_entry_id,
        "event": found or event(f"event-of-{dispatch_id}"),
        "keys": {},
    }


def completed(
    outcome: InvocationOutcome = "success",
    dispatch_id: str = "d1",
    *,
    attempt: int = 1,
    fence: int = 1,
    error: str | None = None,
    error_class: ErrorClass = "none",
    result: str | None = None,
    retry_after_ms: int | None = None,
    invoker_id: str = "i1",
) -> InvocationCompleted:
    """An invoker's word that an invocation ended."""
    return {
        "dispatch_id": dispatch_id,
        "attempt": attempt,
        "fence": fence,
        "invoker_id": invoker_id,
        "outcome": outcome,
        "result": result,
        "error": error,
        "error_class": error_class,
        "retry_after_ms": retry_after_ms,
        "usage": None,
        "emissions": [],
        "started_at_ms": 0,
        "completed_at_ms": 1_000,
    }


def running(
    *dispatch_ids: str, attempt: int = 1, fence: int = 1, invoker_id: str = "i1"
) -> InvocationsRunning:
    """An invoker's word that it runs these."""
    return {
        "invoker_id": invoker_id,
        "running": [
            {"dispatch_id": dispatch_id, "attempt": attempt, "fence": fence}
            for dispatch_id in dispatch_ids
        ],
    }


class DispatchLog(StageLog):
    """A dispatch partition with the binding `triage@v1` in force."""

    def __init__(
        self, retry: RetryPolicy | None = None, *, partition: int = 0, partitions: int = 1
    ) -> None:
        super().__init__("dispatch", partition=partition, partitions=partitions)
        bound = versioned(retry=retry or retry_policy("immediate", max_attempts=3))
        in_force = policy(lease_ms=LEASE_MS)
        self.add("revision_published", revision(1, added=[bound], in_force=in_force))

    def match(self, dispatch_id: str = "d1", **options: Any) -> list[Out]:
        """An event is matched."""
        return self.add("event_matched", matched(dispatch_id, **options))

    def complete(self, outcome: InvocationOutcome = "success", **options: Any) -> list[Out]:
        """An invocation ends."""
        return self.add("invocation_completed", completed(outcome, **options))

    def run(self, *dispatch_ids: str, **options: Any) -> list[Out]:
        """An invoker says what it runs."""
        return self.add("invocations_running", running(*dispatch_ids, **options))

    def row(self, dispatch_id: str = "d1") -> dict[str, Any] | None:
        """The row of a dispatch, or None."""
        return self.rows.get(f"d:{dispatch_id}")
