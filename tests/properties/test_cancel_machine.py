"""Cancelling against a model, with every gate: who is asked to stop stops, and nobody else does.

The model knows three things of each dispatch: whether it lives, whether it is marked, and when its
request came.  Everything else is judged by the outputs and by the slots that rows account for.
"""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streams.core.dispatch_index import DispatchIndex
from streams.core.gate.slots import Slots
from streams.testing import policy
from tests.support.dispatch_log import completed, matched, running
from tests.support.gate_log import KEY, gated
from tests.support.revisions import revision
from tests.support.stage_log import Out, StageLog, reloaded

TTL_MS = 300
LEASE_MS = 100
NAMES = [f"d{number}" for number in range(8)]
FLOWS: list[dict[str, Any]] = [
    {},
    {"batch": {"size": 3, "timeout_ms": 90}},
    {"debounce": {"period_ms": 40, "max_wait_ms": 200}},
    {"throttle": {"period_ms": 50, "max": 1}},
    {"singleton": {}},
    {"concurrency": {"max": 1}},
    {"when": "is_big"},
    {"when": "is_big", "concurrency": {"max": 1}},
    {"concurrency": {"max": 2, "release_on_retry": True}, "throttle": {"period_ms": 30, "max": 2}},
]
TERMINAL = {"dispatch_succeeded", "dlq_moved", "dispatch_skipped", "dispatch_cancelled"}


class CancelMachine(RuleBasedStateMachine):
    """One dispatch partition whose binding has some gates."""

    @initialize(flow=st.sampled_from(FLOWS))
    def begin(self, flow: dict[str, Any]) -> None:
        self.log = StageLog("dispatch")
        bound = gated(flow, backoff="svix", max_attempts=2)
        in_force = policy(lease_ms=LEASE_MS, cancel_ttl_ms=TTL_MS)
        self.log.add("revision_published", revision(1, added=[bound], in_force=in_force))
        self.asked_ms: dict[str, int] = {}  # requests that wait
        self.marked: set[str] = set()
        self.came: set[str] = set()
        self.ends: dict[str, str] = {}

    def fold(self, kind: str, value: Any) -> list[Out]:
        outputs = self.log.add(kind, value)
        for out in outputs:
            if out.kind in TERMINAL:
                name = out.value["dispatch_id"]
                assert name not in self.ends, "a dispatch ends once"
                self.ends[name] = out.kind
            elif out.kind == "invoke":
                name = out.value["dispatch_id"]
                assert name not in self.marked, "a marked dispatch is never invoked again"
                assert name not in self.ends, "nor one that has ended"
        return outputs

    def row(self, name: str) -> dict[str, Any] | None:
        return self.log.rows.get(f"d:{name}")

    @rule(name=st.sampled_from(NAMES))
    def match(self, name: str) -> None:
        if name in self.came:
            return
        self.came.add(name)
        asked_ms = self.asked_ms.pop(name, None)
        self.fold("event_matched", matched(name))
        cancelled = asked_ms is not None and self.log.now_ms < asked_ms + TTL_MS
        assert (self.ends.get(name) == "dispatch_cancelled") == cancelled

    @rule(name=st.sampled_from(NAMES))
    def cancel(self, name: str) -> None:
        self.fold("tick", {"due_ms": self.log.now_ms})  # what is due now is not the request's doing
        before = self.row(name)
        request = {
            "binding_key": KEY,
            "event_id": f"event-of-{name}",
            "requested_at": "",
            "requested_by": None,
            "audit_id": None,
        }
        outputs = self.fold("dispatch_cancel_requested", request)
        if before is None:
            self.asked_ms[name] = self.log.now_ms
            assert outputs == []
        elif name in self.marked:
            assert outputs == []
        elif before["status"] in {"evaluating", "invoked", "running"}:
            self.marked.add(name)
            assert [out.kind for out in outputs] == ["cancel_invocation"]
        else:
            assert self.ends[name] == "dispatch_cancelled"

    @rule(name=st.sampled_from(NAMES))
    def run(self, name: str) -> None:
        row = self.row(name)
        self.fold("invocations_running", running(name, fence=1 if row is None else row["fence"]))

    @rule(name=st.sampled_from(NAMES), outcome=st.sampled_from(["success", "failed", "unresolved"]))
    def complete(self, name: str, outcome: Any) -> None:
        row = self.row(name)
        if row is None:
            return
        word = completed(outcome, name, attempt=row["attempt"], fence=row["fence"], result="true")
        self.fold("invocation_completed", word)
        if name in self.marked and row["status"] in {"evaluating", "invoked", "running"}:
            assert self.ends[name] == "dispatch_cancelled"

    @rule(after_ms=st.sampled_from([1, 30, 50, LEASE_MS, TTL_MS, 6_000]))
    def wait(self, after_ms: int) -> None:
        self.log.now_ms += after_ms
        self.fold("tick", {"due_ms": self.log.now_ms})

    @invariant()
    def slots_are_those_that_rows_account_for(self) -> None:
        index: DispatchIndex = self.log.memory.state.index
        again: DispatchIndex = reloaded(self.log.memory).state.index
        assert _held_and_waiting(index.slots) == _held_and_waiting(again.slots)

    def teardown(self) -> None:
        for _ in range(100):  # whoever still lives is let to its end
            live = [key[2:] for key in self.log.rows if key.startswith("d:")]
            if not live:
                break
            self.wait(6_000)
            for name in live:
                self.complete(name, "success")
        assert set(self.ends) == self.came
        # A predicate's breaker remembers that it failed.
        assert Counter(key[0] for key in self.log.rows).keys() <= set("brwcqop")
        self.log.assert_replays([2, 5, 1, 3], reload_at=frozenset({1, 2, 5, 9}))


def _held_and_waiting(slots: Slots) -> tuple[dict[Any, set[str]], dict[Any, list[str]]]:
    held = {key: set(holders) for key, holders in slots.holders.items()}
    return held, {key: slots.in_order(key) for key in slots.waiting}


CancelMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestCancel = CancelMachine.TestCase
