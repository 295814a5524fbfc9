"""Predicates that are functions: evaluated before the gates, watched, and paid for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from streams.core.breaker import FAILURES_MAX, OPEN_MS, SAMPLES_MAX
from streams.core.budget import DAY_MS, HOUR_MS
from streams.core.dispatch_predicate import DEFERRALS_MAX
from streams.core.wire import InvocationOutcome
from tests.support.dispatch_log import completed, matched, running
from tests.support.gate_log import KEY, gated
from tests.support.revisions import revision
from tests.support.stage_log import START_MS, Out, StageLog, kinds

USD = 1_000_000  # micro-dollars
FIRST_HOUR_ENDS = START_MS - START_MS % HOUR_MS + HOUR_MS
FIRST_DAY_ENDS = START_MS - START_MS % DAY_MS + DAY_MS


class PredicateLog(StageLog):
    """A dispatch partition whose binding has `when = "is_big"`."""

    def __init__(
        self, flow: Mapping[str, Any] | None = None, *, partition: int = 0, partitions: int = 1
    ) -> None:
        super().__init__("dispatch", partition=partition, partitions=partitions)
        bound = gated({"when": "is_big", **(flow or {})}, max_attempts=1)
        self.add("revision_published", revision(1, added=[bound]))

    def match(self, name: str) -> list[Out]:
        return self.add("event_matched", matched(name))

    def answer(
        self,
        name: str,
        result: str | None = "true",
        *,
        outcome: InvocationOutcome = "success",
        cost: int | None = None,
        tokens: int = 0,
        fence: int = 1,
        attempt: int = 0,
        **options: Any,
    ) -> list[Out]:
        """The invoker's word on an evaluation."""
        word = completed(outcome, name, attempt=attempt, fence=fence, result=result, **options)
        usage = None if cost is None else {"cost_usd_micros": cost, "tokens": tokens}
        return self.add("invocation_completed", {**word, "usage": usage})

    def evaluate(self, name: str, result: str | None = "true", **options: Any) -> list[Out]:
        return [*self.match(name), *self.answer(name, result, **options)]

    def status(self, name: str) -> str | None:
        found = self.rows.get(f"d:{name}")
        return None if found is None else found["status"]


def only(outs: list[Out], kind: str) -> dict[str, Any]:
    [found] = [out.value for out in outs if out.kind == kind]
    return found


# ---------------------------------------------------------------------- verdicts
def test_an_evaluation_is_an_intent_of_its_own_and_a_yes_starts_the_first_attempt() -> None:
    log = PredicateLog({"when_budget": {"timeout_ms": 1_500}})
    [asked] = log.match("a")
    assert (asked.topic, asked.kind) == ("trigger.invocations", "invoke")
    value = asked.value
    assert (value["purpose"], value["handler"]) == ("predicate", "is_big")
    assert (value["attempt"], value["attempt_id"], value["fence"]) == (0, "a.when", 1)
    assert value["timeout_ms"] == 1_500
    assert log.status("a") == "evaluating"
    outs = log.answer("a", cost=12, tokens=3)
    assert kinds(outs) == ["predicate.evaluated", "DispatchStarted", "dispatch_started", "invoke"]
    evaluated = only(outs, "predicate.evaluated")
    assert (evaluated["predicate"], evaluated["result"], evaluated["reason"]) == (
        "is_big",
        True,
        None,
    )
    assert (evaluated["cost_usd_micros"], evaluated["tokens"], evaluated["latency_ms"]) == (
        12,
        3,
        1_000,
    )
    intent = only(outs, "invoke")
    assert (intent["purpose"], intent["attempt"], intent["fence"]) == ("handler", 1, 2)
    ended = log.answer("a", fence=2, attempt=1)
    assert only(ended, "dispatch_succeeded")["attempt"] == 1


def test_a_time_that_no_clock_has_shown_stops_nothing() -> None:
    log = PredicateLog()
    log.match("a")
    word = completed("success", "a", attempt=0, result="true")
    times = {"started_at_ms": -(1 << 63), "completed_at_ms": (1 << 63) - 1}
    outs = log.add("invocation_completed", {**word, **times})
    assert only(outs, "predicate.evaluated")["latency_ms"] == 1 << 62


def test_a_no_skips_it_without_an_attempt() -> None:
    outs = PredicateLog().evaluate("a", "false")
    skipped = only(outs, "dispatch_skipped")
    assert skipped["skip_stage"] == "predicate"
    assert json.loads(skipped["detail"]) == {"predicate": "is_big", "reason": "false"}
    assert "dispatch_started" not in kinds(outs)


@pytest.mark.parametrize(
    ("outcome", "result", "reason"),
    [
        ("failed", None, "failed: boom"),
        ("denied", None, "failed: boom"),
        ("success", '"yes"', "failed: expected true or false"),
        ("success", None, "failed: expected true or false"),
        ("success", "1", "failed: expected true or false"),
    ],
)
def test_what_gives_no_verdict_says_no(
    outcome: InvocationOutcome, result: str | None, reason: str
) -> None:
    log = PredicateLog()
    log.match("a")
    error = "boom" if outcome != "success" else None
    outs = log.answer("a", result, outcome=outcome, error=error)
    evaluated = only(outs, "predicate.evaluated")
    assert (evaluated["result"], evaluated["reason"]) == (False, reason)
    assert only(outs, "dispatch_skipped")["skip_stage"] == "predicate"
    assert not [key for key in log.rows if key.startswith("d:")]


def test_leases_fences_and_what_is_given_back_are_as_for_an_attempt() -> None:
    log = PredicateLog()
    log.match("a")
    log.add("invocations_running", running("a", attempt=0))
    assert log.status("a") == "running"
    [lost, again] = log.tick(60_000)
    assert (lost.kind, again.value["purpose"], again.value["fence"]) == (
        "InvocationLost",
        "predicate",
        2,
    )
    assert kinds(log.answer("a", fence=1)) == ["OutcomeRefused"]
    outs = log.answer("a", None, outcome="interrupted", fence=2)
    assert only(outs, "invoke")["purpose"] == "predicate"
    outs = log.answer("a", fence=3)
    assert only(outs, "invoke")["fence"] == 4
    log.assert_replays([2, 1, 3], reload_at=frozenset({1, 2, 3}))


def test_gates_come_after_it() -> None:
    log = PredicateLog({"rate_limit": {"period_ms": 60_000, "max": 1}})
    log.evaluate("a", "false")
    assert "invoke" in kinds(log.evaluate("b"))
    skipped = only(log.evaluate("c"), "dispatch_skipped")
    assert json.loads(skipped["detail"]) == {"flow_control": "rate_limited"}


@pytest.mark.parametrize(("spent", "next_one"), [(USD // 4, None), (None, "evaluating")])
def test_a_cancel_ends_an_evaluation(spent: int | None, next_one: str | None) -> None:
    log = PredicateLog({"budget": {"hourly_cost_micros": USD, "max_cost_micros": USD}})
    log.match("a")
    word = {
        "binding_key": KEY,
        "event_id": "event-of-a",
        "requested_at": "2026-01-01T00:00:00Z",
        "requested_by": None,
        "audit_id": None,
    }
    log.add("dispatch_cancel_requested", word)
    outs = log.answer("a", cost=spent)
    assert "dispatch_cancelled" in kinds(outs)
    log.match("b")
    assert log.status("b") == next_one, "what it spent before it was cancelled, and no more"
    log.assert_replays([1], reload_at=frozenset(range(5)))


def test_an_event_without_a_verdict_of_its_expression_does_not_go_on() -> None:
    log = PredicateLog({"when": "cel:event.payload.n > 1"})
    skipped = only(log.match("a"), "dispatch_skipped")
    assert json.loads(skipped["detail"])["reason"] == "false"


# ---------------------------------------------------------------------- the breaker
def test_vector_2_10_three_failures_open_it_and_the_fourth_event_is_not_evaluated() -> None:
    log = PredicateLog()
    for number in range(FAILURES_MAX):
        log.evaluate(f"f{number}", None, outcome="failed", error="boom")
    outs = log.match("fourth")
    assert kinds(outs) == ["predicate.evaluated", "dispatch_skipped"]
    assert only(outs, "predicate.evaluated")["reason"] == "circuit_open"
    found = log.rows[f"p:{KEY}"]
    assert found["failures"] == FAILURES_MAX
    assert found["open_until_ms"] == START_MS - 1_000 + OPEN_MS, "from its start, a second before"


def test_after_five_minutes_one_failure_opens_it_again_and_one_verdict_closes_it() -> None:
    log = PredicateLog()
    for number in range(FAILURES_MAX):
        log.evaluate(f"f{number}", None, outcome="timeout")
    log.now_ms += OPEN_MS
    assert kinds(log.match("a")) == ["invoke"]
    log.answer("a", None, outcome="failed")
    assert "invoke" not in kinds(log.match("b"))
    log.now_ms += OPEN_MS
    log.evaluate("c", "false")
    assert f"p:{KEY}" not in log.rows
    for number in range(FAILURES_MAX - 1):
        log.evaluate(f"g{number}", None, outcome="failed")
    assert kinds(log.match("d")) == ["invoke"]


def test_other_partitions_leave_it_alone_as_well() -> None:
    here, there = (PredicateLog(partition=number, partitions=2) for number in range(2))
    outs: list[Out] = []
    for number in range(FAILURES_MAX):
        outs += here.evaluate(f"f{number}", None, outcome="failed")
    [word] = [out for out in outs if out.kind == "breaker_opened"]
    assert word.partition == 1
    assert there.add("breaker_opened", word.value) == []
    assert "invoke" not in kinds(there.match("a"))
    there.now_ms += OPEN_MS
    there.evaluate("b", None, outcome="failed")
    assert "invoke" not in kinds(there.match("c")), "one failure is enough there, too"
    assert kinds(there.add("breaker_opened", {**word.value, "partition": 1})) == [
        "record_quarantined"
    ]
    unknown = {**word.value, "binding_key": "gone@v1"}
    assert there.add("breaker_opened", unknown) == []
    assert "p:gone@v1" not in there.rows


# ---------------------------------------------------------------------- budgets
def budget(strategy: str = "false", **limits: int) -> dict[str, Any]:
    return {"budget": {**limits, "on_budget_exhausted": strategy}}


def test_an_hour_is_used_up_when_the_next_evaluation_would_exceed_it() -> None:
    log = PredicateLog(budget(hourly_cost_micros=10))
    log.evaluate("a", cost=5)
    log.evaluate("b", cost=5)
    outs = log.match("c")
    exceeded = only(outs, "predicate.budget_exceeded")
    assert (exceeded["reason"], exceeded["strategy"]) == ("hourly_budget_exceeded", "false")
    assert (exceeded["expected_cost_usd_micros"], exceeded["cost_hour_usd_micros"]) == (5, 10)
    assert (exceeded["hourly_limit_usd_micros"], exceeded["daily_limit_usd_micros"]) == (10, None)
    assert only(outs, "predicate.evaluated")["on_budget_exhausted"] == "false"
    assert only(outs, "dispatch_skipped")["skip_stage"] == "predicate"
    log.now_ms = FIRST_HOUR_ENDS
    assert kinds(log.match("d")) == ["invoke"]


def test_exactly_the_limit_is_not_too_much() -> None:
    log = PredicateLog(budget(hourly_cost_micros=10, max_cost_micros=5))
    log.match("a")
    assert kinds(log.match("b")) == ["invoke"]
    assert "predicate.budget_exceeded" in kinds(log.match("c"))


def test_what_runs_is_reserved_and_what_it_did_not_spend_is_free_again() -> None:
    log = PredicateLog(budget(hourly_cost_micros=10, max_cost_micros=6))
    log.match("a")
    assert "predicate.budget_exceeded" in kinds(log.match("b"))
    log.answer("a", cost=1)
    assert log.rows["m:t:triage"]["hour_micros"] == 1
    assert kinds(log.match("c")) == ["invoke"], "the expectation is the average of the last ones"
    log.assert_replays([1, 3, 2], reload_at=frozenset({1, 2, 3}))


def test_vector_2_17_fail_is_the_dead_letter_queues() -> None:
    log = PredicateLog(budget("fail", daily_cost_micros=1))
    log.evaluate("a", cost=1)
    moved = only(log.match("b"), "dlq_moved")
    assert (moved["reason"], moved["error_class"], moved["attempt_count"]) == (
        "budget_exhausted",
        "budget_exhausted",
        0,
    )


@pytest.mark.parametrize(
    ("limits", "renewed_ms"),
    [
        ({"hourly_cost_micros": 1}, FIRST_HOUR_ENDS),
        ({"daily_cost_micros": 1}, FIRST_DAY_ENDS),
    ],
)
def test_vector_2_18_retry_later_waits_for_the_next_window(
    limits: dict[str, int], renewed_ms: int
) -> None:
    log = PredicateLog(budget("retry_later", **limits))
    log.evaluate("a", cost=1)
    outs = log.match("b")
    assert kinds(outs) == ["predicate.budget_exceeded", "budget_deferred"]
    assert log.status("b") == "deferred"
    assert log.rows["d:b"]["due_ms"] == renewed_ms
    assert only(outs, "budget_deferred")["retry_at"].endswith("Z")
    log.now_ms = renewed_ms
    outs = log.tick()
    assert only(outs, "invoke")["purpose"] == "predicate"
    assert only(log.answer("b"), "invoke")["attempt"] == 1


def test_a_dispatch_does_not_wait_for_its_budget_for_ever() -> None:
    log = PredicateLog(budget("retry_later", hourly_cost_micros=0, max_cost_micros=1))
    log.match("a")
    for _ in range(DEFERRALS_MAX):
        assert log.status("a") == "deferred"
        outs = log.tick(HOUR_MS)
    assert only(outs, "dlq_moved")["reason"] == "budget_exhausted"


def test_warn_goes_on() -> None:
    log = PredicateLog(budget("warn", hourly_cost_micros=0, max_cost_micros=1))
    assert kinds(log.match("a")) == ["predicate.budget_exceeded", "invoke"]


@pytest.mark.parametrize(
    ("usage", "outcome"),
    [({"cost": 2}, "success"), ({"cost": 0, "tokens": 2}, "success"), ({"cost": 0}, "timeout")],
)
def test_one_evaluation_that_takes_more_than_it_may_says_no(
    usage: dict[str, int], outcome: InvocationOutcome
) -> None:
    limits = budget(max_cost_micros=1, tokens_max=1)
    log = PredicateLog(limits)
    outs = log.evaluate("a", "true" if outcome == "success" else None, outcome=outcome, **usage)
    assert only(outs, "predicate.budget_exceeded")["reason"] == "budget_exceeded"
    assert only(outs, "predicate.evaluated")["reason"] == "budget_exceeded"
    assert "dispatch_skipped" in kinds(outs)


def test_one_evaluation_that_takes_too_much_by_strategy() -> None:
    limits = {"max_cost_micros": 1}
    log = PredicateLog(budget("warn", **limits))
    assert "dispatch_started" in kinds(log.evaluate("a", cost=2))
    log = PredicateLog(budget("fail", **limits))
    assert only(log.evaluate("a", cost=2), "dlq_moved")["reason"] == "budget_exhausted"
    log = PredicateLog(budget("retry_later", **limits))
    assert "dispatch_skipped" in kinds(log.evaluate("a", cost=2)), "waiting makes it no cheaper"


def test_handlers_spend_as_well_and_a_budget_needs_no_predicate() -> None:
    log = StageLog("dispatch")
    bound = gated({"budget": {"hourly_cost_micros": 3}}, max_attempts=1)
    log.add("revision_published", revision(1, added=[bound]))
    log.add("event_matched", matched("a"))
    word = {**completed("failed", "a"), "usage": {"cost_usd_micros": 4, "tokens": 0}}
    log.add("invocation_completed", word)
    outs = log.add("event_matched", matched("b"))
    assert kinds(outs) == ["predicate.budget_exceeded", "dispatch_skipped"]
    assert only(outs, "dispatch_skipped")["skip_stage"] == "budget"


def test_the_namespaces_budget_is_looked_at_last() -> None:
    flow = {"orchestrator_budget": {"hourly_cost_micros": 5, "daily_cost_micros": 5}}
    log = PredicateLog({**budget(daily_cost_micros=100), **flow})
    log.evaluate("a", cost=5)
    exceeded = only(log.evaluate("b", cost=5), "predicate.budget_exceeded")
    assert exceeded["reason"] == "orchestrator_hourly_budget_exceeded"


def test_partitions_tell_each_other_before_a_quarter_of_the_limit_is_untold() -> None:
    here, there = (
        PredicateLog(budget(hourly_cost_micros=80), partition=number, partitions=2)
        for number in range(2)
    )
    told: list[Out] = []
    for number in range(8):
        outs = here.evaluate(f"a{number}", cost=9)
        told += [out for out in outs if out.kind == "budget_spent"]
    assert [out.value["micros"] for out in told] == [18, 18, 18, 18], "a quantum is 10 of 80"
    for out in told:
        there.add("budget_spent", out.value)
    assert there.rows["m:t:triage"]["hour_micros"] == 72
    assert kinds(there.match("b"))[-1] == "invoke"
    there.answer("b", cost=9)
    assert "predicate.budget_exceeded" in kinds(there.match("c"))


def test_words_on_money_that_nobody_can_have_said_are_refused() -> None:
    log = PredicateLog(budget(hourly_cost_micros=80), partitions=2)
    hour_ms = FIRST_HOUR_ENDS - HOUR_MS
    word = {
        "scope": "t:triage",
        "partition": 1,
        "day_ms": FIRST_DAY_ENDS - DAY_MS,
        "hour_ms": hour_ms,
        "micros": 5,
    }
    for wrong in ({"micros": -1}, {"micros": 10**16}, {"partition": 0}, {"scope": "t" * 300}):
        assert kinds(log.add("budget_spent", {**word, **wrong})) == ["record_quarantined"]
    log.add("budget_spent", {**word, "hour_ms": hour_ms - HOUR_MS})
    found = log.rows["m:t:triage"]
    assert (found["hour_micros"], found["day_micros"]) == (0, 5), "an earlier hour of this day"
    log.add("budget_spent", {**word, "day_ms": 0})
    assert log.rows["m:t:triage"]["day_micros"] == 5


def test_samples_are_bounded_and_a_bindings_end_forgets_them() -> None:
    log = PredicateLog(budget(hourly_cost_micros=10**9))
    for number in range(SAMPLES_MAX + 5):
        log.evaluate(f"a{number}", "false", cost=number)
    assert log.rows[f"p:{KEY}"]["samples"] == list(range(5, SAMPLES_MAX + 5))
    log.add("revision_published", revision(2, drained=[KEY]))
    log.add("revision_reached", {"revision": 2, "inbox_partition": 0, "inbox_partitions": 1})
    assert f"p:{KEY}" not in log.rows


def test_money_rows_go_when_their_day_is_over() -> None:
    log = PredicateLog(budget(hourly_cost_micros=10**9))
    log.evaluate("a", "false", cost=7)
    log.now_ms = FIRST_DAY_ENDS
    log.evaluate("b", "false")
    assert "m:t:triage" not in log.rows
