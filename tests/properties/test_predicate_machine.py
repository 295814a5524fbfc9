"""Breaker and budget of a predicate against their model."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.dispatch_log import completed, matched
from tests.support.gate_log import KEY, gated
from tests.support.predicate_model import DAY_MS, HOUR_MS, PredicateModel
from tests.support.revisions import revision
from tests.support.stage_log import StageLog

COST_MAX = 5  # of which limits are multiples: what just fits is common
RESULTS = {True: "true", False: "false", None: '"perhaps"'}


class PredicateMachine(RuleBasedStateMachine):
    """One partition; whoever the predicate lets on succeeds at once."""

    def __init__(self) -> None:
        super().__init__()
        self.log = StageLog("dispatch")
        self.came = 0
        self.ends: dict[str, str] = {}

    @initialize(
        hourly=st.none() | st.sampled_from([0, 5, 10, 20]),
        daily=st.sampled_from([15, 40]),
        strategy=st.sampled_from(["false", "warn", "fail", "retry_later"]),
    )
    def begin(self, hourly: int | None, daily: int, strategy: str) -> None:
        budget = {
            "daily_cost_micros": daily,
            "max_cost_micros": COST_MAX,
            "on_budget_exhausted": strategy,
        }
        if hourly is not None:
            budget["hourly_cost_micros"] = hourly
        bound = gated({"when": "is_big", "budget": budget})
        self.log.add("revision_published", revision(1, added=[bound]))
        self.model = PredicateModel(hourly, daily, COST_MAX, strategy, self.log.now_ms)

    def fold(self, kind: str, value: Any) -> None:
        for out in self.log.add(kind, value):
            if out.kind in {"dispatch_succeeded", "dispatch_skipped"}:
                self.ends[out.value["dispatch_id"]] = out.kind.removeprefix("dispatch_")
            elif out.kind == "dlq_moved":
                self.ends[out.value["dispatch_id"]] = out.value["reason"]

    @rule()
    def match(self) -> None:
        name = f"d{self.came}"
        self.came += 1
        self.tick()
        self.fold("event_matched", matched(name))
        self.model.begin(name)

    @rule(
        place=st.integers(0, 30),
        verdict=st.sampled_from([True, False, None, None]),
        cost=st.sampled_from([0, 3, *[COST_MAX] * 5, COST_MAX + 1]),
    )
    def answer(self, place: int, verdict: bool | None, cost: int) -> None:
        self.tick()
        if not self.model.evaluating:
            return
        name = sorted(self.model.evaluating)[place % len(self.model.evaluating)]
        word = completed("success", name, attempt=0, result=RESULTS[verdict])
        usage = {"cost_usd_micros": cost, "tokens": 1}
        self.fold("invocation_completed", {**word, "usage": usage})
        self.model.answer(name, verdict, cost)
        row = self.log.rows.get(f"d:{name}")
        if row is not None:
            assert (row["status"], row["attempt"], row["fence"]) == ("invoked", 1, 2)
            self.fold("invocation_completed", completed("success", name, fence=2))

    @rule(after_ms=st.sampled_from([1, 299_000, HOUR_MS, DAY_MS]))
    def wait(self, after_ms: int) -> None:
        self.log.now_ms += after_ms
        self.tick()

    def tick(self) -> None:
        self.fold("tick", {"due_ms": self.log.now_ms})
        self.model.moves_time(self.log.now_ms)

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        model, rows = self.model, self.log.rows
        live = {key[2:]: row for key, row in rows.items() if key.startswith("d:")}
        evaluating = {
            name: row["reserved_micros"]
            for name, row in live.items()
            if row["status"] == "evaluating"
        }
        assert evaluating == model.evaluating
        deferred = {
            name: row["due_ms"] for name, row in live.items() if row["status"] != "evaluating"
        }
        assert deferred == model.deferred
        assert self.ends == model.ended
        money = rows.get("m:t:triage")
        if money is not None and money["hour_ms"] + HOUR_MS > model.now_ms:
            assert (money["hour_micros"], money["day_micros"]) == (model.hour(), model.day())
        found = rows.get(f"p:{KEY}", {"failures": 0, "open_until_ms": 0})
        assert (found["failures"], found["open_until_ms"]) == (model.failures, model.open_until_ms)

    def teardown(self) -> None:
        self.log.assert_replays([2, 5, 1, 3], reload_at=frozenset({1, 2, 5, 9}))


PredicateMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestPredicate = PredicateMachine.TestCase
