"""What a worker registers: gates that are refused, and jobs that go on as gates come and go."""

from __future__ import annotations

import pytest

from tests.support.scheduler_log import answers
from tests.support.stage_log import START_MS
from tests.unit.core.test_scheduler_gates import FOREVER_MS, first, gated, granted, replays


def test_a_registration_that_allows_more_lets_those_that_wait_go_on() -> None:
    log = gated(3, concurrency={"max": 1})
    log.ask(*first(3))
    assert granted(log.register("d2", triage={"concurrency": {"max": 2}})) == {"1.2": True}
    outs = log.register("d3")
    assert granted(outs) == {"2.2": True}, "no gate is left"
    assert {out.value["gates_digest"] for out in outs if out.kind == "jobs_granted"} == {"d3"}
    replays(log)


@pytest.mark.parametrize("gate", ["throttle", "debounce"])
def test_a_gate_that_is_gone_holds_nobody_whatever_time_they_waited_for(gate: str) -> None:
    log = gated(4, **{gate: {"max": 1, "period_ms": FOREVER_MS}})
    asked = first(4) if gate == "throttle" else ["0.1"]
    assert answers(log.ask(*asked)).endswith("delayed")
    assert set(granted(log.register("d2", triage={"concurrency": {"max": 1}}))) <= {"1.2", "0.2"}
    found = log.summary()
    assert (found["ready"], found["delayed"]) == ((0, 2) if gate == "throttle" else (0, 0))
    outs = log.register("d3")
    assert len(granted(outs)) == (2 if gate == "throttle" else 0)
    assert log.summary()["delayed"] == 0
    replays(log)


def test_starts_that_a_throttle_had_planned_are_nobodys_once_it_is_gone() -> None:
    throttle = {"throttle": {"max": 1, "period_ms": 1_000}}
    log = gated(5, **throttle)
    log.ask(*first(5))
    begun = granted(log.register("d2"))
    assert len(begun) == 4
    log.ack("0.1", *begun)
    log.register("d3", triage=throttle)
    assert granted(log.ready("a")) == {"5.1": False}
    outs = log.ask("5.1")
    released = [out.value for out in outs if out.kind == "job_released"]
    assert [each["not_before_ms"] - START_MS for each in released] == [1_000]
    replays(log)


def test_a_job_whose_time_has_come_is_ready_once_though_its_gate_is_gone() -> None:
    log = gated(2, throttle={"max": 1, "period_ms": 1_000})
    log.ask(*first(2))
    log.beat(capacity=0, claims=["0.1"])
    log.tick(after_ms=1_000)
    assert log.summary()["ready"] == 1
    log.register("d2")
    assert log.summary()["ready"] == 1
    assert granted(log.beat(capacity=5, claims=["0.1"])) == {"1.2": True}
    replays(log)


def test_a_lower_limit_holds_from_then_on() -> None:
    log = gated(4, concurrency={"max": 2})
    log.ask(*first(3))
    log.register("d2", triage={"concurrency": {"max": 1}})
    assert granted(log.ack("0.1")) == {}
    assert granted(log.ack("1.1")) == {"2.2": True}


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ("[]", "is no JSON object"),
        ("{", "is no JSON"),
        ("[" * 200_000, "is no JSON"),
        ('{"throttle":"' + "x" * 200_000 + '"}', 'throttle is "xxx'),
        ('{"batch":{"size":2,"timeout_ms":1}}', "declares batch: a job is answered by itself"),
        ('{"concurrency":{"max":0}}', "concurrency.max is 0, expected 1 to 1000000"),
        ('{"throttle":{"max":1}}', "throttle.period_ms is null, expected 1 to"),
        ('{"rate_limit":{"max":10001,"period_ms":1}}', "rate_limit.max is 10001, expected 1 to"),
        ('{"singleton":7}', "singleton is 7, expected an object"),
        ('{"singleton":{},"max_waiting":true}', "max_waiting is true, expected 1 to"),
        ('{"debounce":{"period_ms":1,"max_wait_ms":0}}', "debounce.max_wait_ms is 0"),
        ('{"concurrency":{"max":1},"priority":{"key":"x"}}', "priority has no order"),
    ],
)
def test_a_registration_that_cannot_be_applied_is_refused_by_name(
    definition: str, problem: str
) -> None:
    log = gated(1, concurrency={"max": 1})
    gates = [{"trigger_id": "t", "definition": definition}]
    value = {"queue": "triage", "consumer_id": "w1", "digest": "d2", "gates": gates}
    (out,) = log.add("consumer_registered", value, key="triage")
    assert out.kind == "record_quarantined"
    assert "SCH-005" in out.value["reason"]
    assert f"gates of trigger 't': {problem}" in out.value["reason"]
    assert log.rows["g:triage"]["digest"] == "d1"


def test_what_a_registration_says_besides_gates_is_of_no_account() -> None:
    log = gated(1, concurrency={"max": 1}, when_budget=7, retry="x", priority="high", timeout_ms=[])
    assert answers(log.ask("0.1")) == "admitted"
