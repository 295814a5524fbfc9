"""A dispatch partition whose binding has gates, seen as what starts, waits and is skipped when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streams.core.wire import TriggerEvent
from streams.testing import event, retry_policy
from tests.support.dispatch_log import completed, matched
from tests.support.revisions import revision, versioned
from tests.support.stage_log import START_MS, Out, StageLog

KEY = "triage@v1"


def gated(flow: Mapping[str, Any], *, backoff: str = "immediate", max_attempts: int = 1) -> Any:
    """A binding with this flow control, as the manifest's reader normalises it."""
    bound = versioned(retry=retry_policy(backoff, max_attempts=max_attempts))  # type: ignore[arg-type]
    definition = {**json.loads(bound["definition"]), **flow}
    return {**bound, "definition": json.dumps(definition, sort_keys=True)}


class GateLog(StageLog):
    """Arrivals and ends at times in seconds after the start; what came of them, in the same."""

    def __init__(self, flow: Mapping[str, Any], **options: Any) -> None:
        super().__init__("dispatch")
        self.add("revision_published", revision(1, added=[gated(flow, **options)]))
        self.started: dict[str, list[float]] = {}
        self.skips: dict[str, str] = {}
        self.dead: dict[str, str] = {}
        self.events: dict[str, dict[str, Any]] = {}
        self.decisions: list[Out] = []

    @property
    def now_s(self) -> float:
        return (self.now_ms - START_MS) / 1000

    def pass_time(self, until_s: float) -> None:
        """Let every timer due by then fire at its own time, as ticks make it."""
        until_ms = START_MS + round(until_s * 1000)
        while (due_ms := self.memory.rows.next_tick_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self._take(self.add("tick", {"due_ms": due_ms}))
        self.now_ms = max(until_ms, self.now_ms)

    def arrive(
        self,
        name: str,
        at_s: float,
        *,
        keys: Mapping[str, str] | None = None,
        found: TriggerEvent | None = None,
    ) -> None:
        """An event is matched."""
        self.pass_time(at_s)
        word = {**matched(name, found=found or event(name)), "keys": dict(keys or {})}
        self._take(self.add("event_matched", word))

    def end(self, name: str, at_s: float, outcome: str = "success", *, fence: int = 1) -> None:
        """The dispatch's invocation ends."""
        self.pass_time(at_s)
        self._take(self.add("invocation_completed", completed(outcome, name, fence=fence)))  # type: ignore[arg-type]

    def cancel(self, name: str, at_s: float) -> None:
        """Somebody asks for the end of the dispatch."""
        self.pass_time(at_s)
        asked = {
            "binding_key": KEY,
            "event_id": name,
            "requested_at": "2026-01-01T00:00:00.000Z",
            "requested_by": "ada",
            "audit_id": None,
        }
        self._take(self.add("dispatch_cancel_requested", asked))

    def kinds(self) -> list[str]:
        """Kinds of all gate decisions, in order."""
        return [out.kind for out in self.decisions]

    def _take(self, outs: list[Out]) -> None:
        for out in outs:
            value = out.value
            if out.kind == "invoke":
                self.started.setdefault(value["dispatch_id"], []).append(self.now_s)
                self.events[value["dispatch_id"]] = value["event"]
            elif out.kind == "dispatch_skipped":
                self.skips[value["dispatch_id"]] = json.loads(value["detail"])["flow_control"]
            elif out.kind == "dlq_moved":
                self.dead[value["dispatch_id"]] = value["reason"]
            elif out.topic.split(".")[-1] == "triage" and out.topic.startswith("trigger."):
                self.decisions.append(out)

    def starts(self) -> dict[str, float]:
        """When each dispatch first started."""
        return {name: times[0] for name, times in self.started.items()}
