"""What a dispatch partition should do, said in the plainest words: the oracle of its property test.

No outputs, no rows, no bytes: one object per live dispatch, and what must happen to it next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streams.core import dispatch_due, dispatch_words, retry
from streams.core.wire import InvocationCompleted, InvocationOutcome, RetryPolicy

FINAL: frozenset[InvocationOutcome] = frozenset({"denied", "cancelled", "result_too_large"})


@dataclass(slots=True)
class ModelDispatch:
    """One live dispatch."""

    retry: RetryPolicy
    attempt: int = 1
    fence: int = 1
    status: str = "invoked"
    due_ms: int | None = None
    losses: int = 0
    returns: int = 0


@dataclass(slots=True)
class DispatchModel:
    """Live dispatches, and how those that ended did."""

    lease_ms: int
    now_ms: int = 0
    live: dict[str, ModelDispatch] = field(default_factory=dict[str, ModelDispatch])
    ended: dict[str, str] = field(default_factory=dict[str, str])
    refusals: int = 0

    def match(self, dispatch_id: str, policy: RetryPolicy) -> None:
        """An event is matched."""
        self.live[dispatch_id] = ModelDispatch(policy)

    def moves_time(self, now_ms: int) -> None:
        """A record came: whatever is due by then happens, in order, once each."""
        self.now_ms = now_ms
        due = [
            (each.due_ms, dispatch_id)
            for dispatch_id, each in self.live.items()
            if each.due_ms is not None and each.due_ms <= now_ms
        ]
        for _, dispatch_id in sorted(due):
            self._due(dispatch_id)

    def _due(self, dispatch_id: str) -> None:
        each = self.live[dispatch_id]
        if each.status == "running":
            each.losses += 1
            if each.losses > dispatch_due.LOSSES_MAX:
                self._end(dispatch_id, "dlq")
                return
            each.fence += 1
        each.status, each.due_ms = "invoked", None

    def holds(self, dispatch_id: str, fence: int) -> bool:
        """Whether an invoker's word counts."""
        each = self.live.get(dispatch_id)
        return each is not None and each.fence == fence and each.status in {"invoked", "running"}

    def running(self, dispatch_id: str, fence: int) -> None:
        """An invoker says that it runs it."""
        if not self.holds(dispatch_id, fence):
            self.refusals += 1
            return
        each = self.live[dispatch_id]
        each.status, each.due_ms = "running", self.now_ms + self.lease_ms

    def completed(self, word: InvocationCompleted) -> None:
        """An invoker says how it ended."""
        dispatch_id = word["dispatch_id"]
        if not self.holds(dispatch_id, word["fence"]):
            self.refusals += 1
            return
        each = self.live[dispatch_id]
        match word["outcome"]:
            case "success":
                self._end(dispatch_id, "succeeded")
            case "interrupted" | "unresolved":
                self._given_back(dispatch_id, word["outcome"])
            case outcome if outcome in FINAL or word["error_class"] == "terminal":
                self._end(dispatch_id, "dlq")
            case _:
                delay_ms = retry.delay_ms(each.retry, each.attempt)
                if delay_ms is None:
                    self._end(dispatch_id, "dlq")
                    return
                delay_ms = max(delay_ms, min(word["retry_after_ms"] or 0, 86_400_000))
                each.attempt, each.fence, each.returns = each.attempt + 1, each.fence + 1, 0
                self._wait(each, "waiting", delay_ms)

    def _given_back(self, dispatch_id: str, outcome: str) -> None:
        each = self.live[dispatch_id]
        each.returns += 1
        if each.returns > dispatch_words.RETURNS_MAX:
            self._end(dispatch_id, "dlq")
            return
        each.fence += 1
        delay_ms = min(30_000, 1_000 * 2 ** (each.returns - 1)) if outcome == "unresolved" else 0
        self._wait(each, "returned", delay_ms)

    def _wait(self, each: ModelDispatch, status: str, delay_ms: int) -> None:
        if delay_ms > 0:
            each.status, each.due_ms = status, self.now_ms + delay_ms
        else:
            each.status, each.due_ms = "invoked", None

    def _end(self, dispatch_id: str, how: str) -> None:
        assert dispatch_id not in self.ended
        del self.live[dispatch_id]
        self.ended[dispatch_id] = how
