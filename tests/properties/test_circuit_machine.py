"""Circuits against their model; slots and circuits together against what they promise."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streams.core.dispatch_index import DispatchIndex
from streams.core.gate.slots import SLOT_GATES, Slots
from streams.core.wire import BindingDefinition
from streams.testing import retry_policy
from tests.support.circuit_model import OPEN_MS, CircuitModel
from tests.support.dispatch_log import completed, matched
from tests.support.gate_log import gated
from tests.support.revisions import revision
from tests.support.stage_log import Out, StageLog, reloaded

PLACES = st.integers(0, 30)
OUTCOMES = st.sampled_from(["failed"] * 8 + ["timeout", "success", "denied"])
KEY = "triage@v1"
DESTINATION = "o:local:on_event"
PARK_MS = 150_000
PARKED_MAX = 3
ATTEMPTS_MAX = 4


def cancel_of(name: str) -> dict[str, Any]:
    return {
        "binding_key": KEY,
        "event_id": f"event-of-{name}",
        "requested_at": "2026-01-01T00:00:00Z",
        "requested_by": None,
        "audit_id": None,
    }


class _Machine(RuleBasedStateMachine):
    """What both machines do with a partition."""

    def __init__(self) -> None:
        super().__init__()
        self.log = StageLog("dispatch")
        self.came: set[str] = set()
        self.ends: dict[str, str] = {}

    def publish(self, flow: dict[str, Any], delay_ms: int) -> None:
        bound: BindingDefinition = gated(flow)
        retry = retry_policy(
            "linear" if delay_ms else "immediate", max_attempts=ATTEMPTS_MAX, delay_ms=delay_ms
        )
        added: Any = {**bound, "retry": retry}
        self.log.add("revision_published", revision(1, added=[added]))

    def newcomer(self) -> str:
        """The next dispatch, which has not come yet."""
        name = f"d{len(self.came)}"
        self.came.add(name)
        return name

    def live(self, place: int, *statuses: str) -> dict[str, Any] | None:
        """One of the live dispatches, in one of these statuses if any are named."""
        rows = [
            row
            for key, row in sorted(self.log.rows.items())
            if key.startswith("d:") and (not statuses or row["status"] in statuses)
        ]
        return rows[place % len(rows)] if rows else None

    def fold(self, kind: str, value: Any) -> list[Out]:
        outputs = self.log.add(kind, value)
        for out in outputs:
            if out.kind in {"dispatch_succeeded", "dispatch_skipped", "dispatch_cancelled"}:
                how = out.kind.removeprefix("dispatch_")
            elif out.kind == "dlq_moved":
                how = out.value["reason"]
            else:
                continue
            assert out.value["dispatch_id"] not in self.ends, "one end"
            self.ends[out.value["dispatch_id"]] = how
        return outputs


class CircuitMachine(_Machine):
    """One binding without gates: every row and every end is the model's."""

    @initialize(delay_ms=st.sampled_from([0, 20_000, 200_000]))
    def begin(self, delay_ms: int) -> None:
        self.publish({"circuit_max_park": PARK_MS, "max_waiting": PARKED_MAX}, delay_ms)
        self.model = CircuitModel(
            attempts_max=ATTEMPTS_MAX,
            delay_ms=delay_ms,
            park_ms=PARK_MS,
            parked_max=PARKED_MAX,
            now_ms=self.log.now_ms,
        )

    @rule()
    def match(self) -> None:
        name = self.newcomer()
        self.model.moves_time(self.log.now_ms)
        self.model.match(name, len(self.log.records))
        self.fold("event_matched", matched(name))

    @rule(place=PLACES, outcome=OUTCOMES, after_ms=st.sampled_from([0, 0, 0, 1, OPEN_MS]))
    def complete(self, place: int, outcome: Any, after_ms: int) -> None:
        self.log.now_ms += after_ms
        self.tick()
        row = self.live(place, "invoked")
        if row is None:
            return
        name = row["dispatch_id"]
        self.fold("invocation_completed", completed(outcome, name, fence=row["fence"]))
        self.model.completed(name, outcome)

    @rule()
    def outage(self) -> None:
        """Everything fails until it opens, or nothing is left that could."""
        for _ in range(8):
            if self.model.open_until_ms is None:
                self.match()
                self.complete(0, "failed", 0)

    @rule(outcome=st.sampled_from(["success", "failed", "denied"]))
    def probe(self, outcome: str) -> None:
        self.log.now_ms += OPEN_MS
        self.tick()
        invoked = [n for n, each in sorted(self.model.live.items()) if each.status == "invoked"]
        if self.model.probe is not None:
            self.complete(invoked.index(self.model.probe), outcome, 0)

    @rule(place=PLACES)
    def cancel(self, place: int) -> None:
        self.tick()
        row = self.live(place)
        if row is None:
            return
        self.fold("dispatch_cancel_requested", cancel_of(row["dispatch_id"]))
        self.model.cancel(row["dispatch_id"])

    @rule(after_ms=st.sampled_from([1, 20_000, OPEN_MS - 1, OPEN_MS, PARK_MS]))
    def wait(self, after_ms: int) -> None:
        self.log.now_ms += after_ms
        self.tick()

    def tick(self) -> None:
        self.fold("tick", {"due_ms": self.log.now_ms})
        self.model.moves_time(self.log.now_ms)

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        found = {
            key[2:]: (row["attempt"], row["fence"], row["status"], row["due_ms"])
            for key, row in self.log.rows.items()
            if key.startswith("d:")
        }
        assert found == {
            name: (each.attempt, each.fence, each.status, each.due_ms)
            for name, each in self.model.live.items()
        }
        row = self.log.rows.get(DESTINATION)
        model = self.model
        if row is None:
            assert (model.failures, model.open_until_ms, model.due_ms) == (0, None, None)
        else:
            until = [each["until_ms"] for each in row["episodes"]]
            assert (row["failures"], until, row["probe"], row["due_ms"]) == (
                model.failures,
                [] if model.open_until_ms is None else [model.open_until_ms],
                model.probe,
                model.due_ms,
            )

    def teardown(self) -> None:
        if hasattr(self, "model"):
            assert self.ends == self.model.ended
            self.log.assert_replays([2, 5, 1, 3], reload_at=frozenset({1, 2, 5, 9}))


class SlotsMachine(_Machine):
    """Slots and a circuit at once: what waits is always let on by something that will happen."""

    @initialize(
        key=st.sampled_from(["one", "two"]),
        max_=st.integers(1, 2),
        release=st.booleans(),
        singleton=st.booleans(),
        mode=st.sampled_from(["park", "dlq"]),
        delay_ms=st.sampled_from([0, 20_000]),
    )
    def begin(
        self, key: str, max_: int, release: bool, singleton: bool, mode: str, delay_ms: int
    ) -> None:
        self.keys = ["a", "b"] if key == "two" else ["a"]
        self.flow: dict[str, Any] = {
            "concurrency": {"max": max_, "release_on_retry": release},
            "circuit": mode,
        }
        if singleton:
            self.flow["singleton"] = {"release_on_retry": release}
        self.publish(self.flow, delay_ms)

    @rule(key=st.integers(0, 1))
    def match(self, key: int) -> None:
        name = self.newcomer()
        value = self.keys[key % len(self.keys)]
        keys = dict.fromkeys(SLOT_GATES, value)
        self.fold("event_matched", {**matched(name), "keys": keys})

    @rule(place=PLACES, outcome=OUTCOMES)
    def complete(self, place: int, outcome: Any) -> None:
        row = self.live(place, "invoked")
        if row is not None:
            word = completed(outcome, row["dispatch_id"], fence=row["fence"])
            self.fold("invocation_completed", word)

    @rule(key=st.integers(0, 1))
    def outage(self, key: int) -> None:
        """Everything fails until it opens, or nothing is left that could."""
        for _ in range(8):
            if not self.is_open():
                self.match(key)
                self.complete(0, "failed")

    def is_open(self) -> bool:
        row = self.log.rows.get(DESTINATION)
        return row is not None and bool(row["episodes"])

    @rule(outcome=st.sampled_from(["success", "failed", "denied"]))
    def probe(self, outcome: str) -> None:
        self.wait(OPEN_MS)
        row = self.log.rows.get(DESTINATION)
        probe = None if row is None or row["probe"] is None else self.log.rows[f"d:{row['probe']}"]
        if probe is not None:
            word = completed(outcome, probe["dispatch_id"], fence=probe["fence"])  # type: ignore[arg-type]
            self.fold("invocation_completed", word)

    @rule(place=PLACES)
    def cancel(self, place: int) -> None:
        row = self.live(place)
        if row is not None:
            self.fold("dispatch_cancel_requested", cancel_of(row["dispatch_id"]))

    @rule(after_ms=st.sampled_from([1, 20_000, OPEN_MS]))
    def wait(self, after_ms: int) -> None:
        self.log.now_ms += after_ms
        self.fold("tick", {"due_ms": self.log.now_ms})

    @invariant()
    def the_index_is_what_the_rows_say(self) -> None:
        index: DispatchIndex = self.log.memory.state.index
        again: DispatchIndex = reloaded(self.log.memory).state.index
        assert _as_sets(index.slots) == _as_sets(again.slots)
        assert index.circuits == again.circuits
        assert not index.freed
        assert not index.letting_on

    @invariant()
    def limits_hold_and_nobody_waits_in_vain(self) -> None:
        index: DispatchIndex = self.log.memory.state.index
        slots = index.slots
        row = self.log.rows.get(DESTINATION)
        for gate, limit in (("singleton", 1), ("concurrency", self.limit())):
            for value in ("a", "b"):
                key = (gate, KEY, value)
                assert slots.held(key) <= limit
                if slots.waiters(key) and slots.held(key) < limit:
                    assert row is not None
                    assert self.parked_of(value), "the circuit will let one on, and so the others"

    def limit(self) -> int:
        return self.flow["concurrency"]["max"] if hasattr(self, "flow") else 1

    def parked_of(self, value: str) -> list[str]:
        return [
            key
            for key, row in self.log.rows.items()
            if row.get("status") == "parked" and row["keys"]["concurrency"] == value
        ]

    def teardown(self) -> None:
        for _ in range(200):  # whoever still lives is let to its end
            if self.live(0) is None:
                break
            self.wait(OPEN_MS)
            while self.live(0, "invoked") is not None:
                self.complete(0, "success")
        assert set(self.ends) == self.came, json.dumps(self.log.rows)
        left = Counter(key[0] for key in self.log.rows)
        assert left.keys() <= {"b", "r", "c", "q", "o"}
        self.log.assert_replays([2, 5, 1, 3], reload_at=frozenset({1, 2, 5, 9}))


def _as_sets(slots: Slots) -> tuple[dict[Any, set[str]], dict[Any, list[str]]]:
    held = {key: set(holders) for key, holders in slots.holders.items()}
    return held, {key: slots.in_order(key) for key in slots.waiting}


CircuitMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestCircuit = CircuitMachine.TestCase
SlotsMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestSlotsAndCircuit = SlotsMachine.TestCase
