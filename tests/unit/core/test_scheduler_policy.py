"""The scheduler's policy: who may set it, what is refused, and what an environment may propose."""

from __future__ import annotations

from typing import Any, cast

import pytest

from streams.core import scheduler_policy
from streams.core.manifest import Manifest
from streams.core.wire import SchedulerPolicy
from streams.edge.scheduler_proposal import differences, policy_of_environment
from streams.errors import ConfigError
from streams.settings import Settings
from streams.testing import binding, policy
from tests.support.registry_log import RegistryLog
from tests.unit.core.test_manifest import TRIGGER, parse, problems

PREFIX = "HARN_SCHEDULER_"


def said(**changes: Any) -> SchedulerPolicy:
    return cast("SchedulerPolicy", {**scheduler_policy.DEFAULT, **changes})


def environment(**variables: str) -> SchedulerPolicy:
    given = {f"{PREFIX}{name}": text for name, text in variables.items()}
    return policy_of_environment(Settings.from_env(given.get))


def published(log: RegistryLog) -> SchedulerPolicy:
    return log.rows["revision"]["policy"]["scheduler"]


# ---------------------------------------------------------------------- the environment
def test_6_24_without_variables_it_is_fifo() -> None:
    assert environment() == scheduler_policy.DEFAULT
    assert scheduler_policy.DEFAULT["strategy"] == "fifo"


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("STRATEGY", " DRR ", "strategy", "drr"),
        ("STRATEGY", "deficit-round-robin", "strategy", "drr"),
        ("STRATEGY", "fair-share", "strategy", "drr"),
        ("FAIRNESS_KEY", "trigger-id", "fairness_key", "trigger_id"),
        ("FAIRNESS_KEY", "composite", "fairness_key", "tenant_and_binding"),
        ("QUANTUM", "3", "quantum", 3),
        ("STARVATION_AGE_MS", "0", "starvation_age_ms", 0),
        ("STARVATION_MODE", "key", "starvation_mode", "key"),
        ("MAX_CONCURRENT_PER_KEY", "2", "max_concurrent_per_key", 2),
        ("DEFAULT_WEIGHT", "2", "default_weight", 2),
        ("WEIGHTS", "tenant-a:3, tenant-b:1", "weights", {"tenant-a": 3, "tenant-b": 1}),
        ("WEIGHTS", "team:blue:4", "weights", {"team:blue": 4}),  # vector 6-26
        ("MAX_DELIVERIES", "0", "max_deliveries", 0),
        ("MAX_WAITING", "5", "max_waiting", 5),
        ("WORKER_TTL_MS", "2000", "worker_ttl_ms", 2_000),
    ],
)
def test_a_variable_says_one_thing(name: str, text: str, field: str, value: object) -> None:
    assert environment(**{name: text}) == said(**{field: value})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("STRATEGY", "round-robin"),
        ("FAIRNESS_KEY", "customer"),
        ("QUANTUM", "0"),
        ("STARVATION_AGE_MS", "5m"),
        ("STARVATION_MODE", "oldest"),
        ("MAX_CONCURRENT_PER_KEY", "-1"),
        ("DEFAULT_WEIGHT", "0"),
        ("WEIGHTS", "a:0"),
        ("WEIGHTS", "a"),
        ("WEIGHTS", ":3"),
        ("WEIGHTS", "a:1,a:2"),
        ("WEIGHTS", "a:1.5"),
    ],
)
def test_a_bad_value_is_an_error_that_names_it(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        environment(**{name: text})
    [problem] = caught.value.problems
    assert problem.startswith(f"{PREFIX}{name} is {text!r}, expected ")


@pytest.mark.parametrize(
    "name",
    ["quantum", "max_concurrent_per_key", "default_weight", "max_deliveries", "max_waiting"],
)
def test_what_the_environment_may_say_the_registry_takes(name: str) -> None:
    expected = {row.name.removeprefix("scheduler_"): row.expected for row in Settings().describe()}[
        name
    ]
    low, high = (int(word) for word in expected.split() if word.isdigit())
    for number, usable in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
        problem = scheduler_policy.problem_of(said(**{name: number}))
        assert (problem is None) is usable, problem


# ---------------------------------------------------------------------- proposals
def test_an_environment_proposes_once_and_a_manifest_is_not_overruled_by_repeats() -> None:
    log = RegistryLog()
    wanted = said(strategy="drr")
    assert [out.kind for out in log.propose(said())] == ["apply_answered"]
    [first] = log.propose(wanted)
    assert (first.kind, first.value["policy"]["scheduler"]) == ("revision_published", wanted)
    [again] = log.propose(wanted)
    assert (again.kind, again.value["answer"]) == ("apply_answered", "unchanged")

    by_manifest = said(quantum=7)
    log.apply(binding("a"), in_force=policy(scheduler=by_manifest))
    assert published(log) == by_manifest
    [repeat] = log.propose(wanted)
    assert (repeat.value["answer"], published(log)) == ("unchanged", by_manifest)
    log.propose(said())
    assert published(log) == said()


def test_a_manifest_that_says_nothing_leaves_the_scheduler_alone() -> None:
    log = RegistryLog()
    log.propose(said(strategy="drr"))
    log.apply(binding("a"))
    assert published(log) == said(strategy="drr")
    [unchanged] = log.apply(binding("a"))
    assert unchanged.value["answer"] == "unchanged"


def test_a_proposal_that_is_in_force_already_is_remembered() -> None:
    log = RegistryLog()
    log.apply(binding("a"), in_force=policy(scheduler=said(quantum=2)))
    [known] = log.propose(said(quantum=2))
    assert known.value["answer"] == "unchanged"
    log.apply(binding("a"), in_force=policy(scheduler=said(quantum=3)))
    assert [out.value["answer"] for out in log.propose(said(quantum=2))] == ["unchanged"]
    assert published(log) == said(quantum=3)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"quantum": 0}, "quantum is 0, expected 1 to"),
        ({"weights": {"a": 0}}, "weight of 'a' is 0"),
        ({"weights": {"": 1}}, "a weight's key has 0 characters"),
        ({"weights": {f"k{n}": 1 for n in range(1_001)}}, "1001 weights, expected at most 1000"),
        (
            {"weights": {f"{n:0101}": 1 for n in range(1_000)}},
            "the keys of all weights have 101000 bytes, expected at most 100000",
        ),
        ({"strategy": "unknown"}, "strategy is none that this release knows"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_whoever_says_it(
    changes: dict[str, Any], problem: str
) -> None:
    log = RegistryLog()
    [proposed] = log.propose(said(**changes))
    [applied] = log.apply(binding("a"), in_force=policy(scheduler=said(**changes)))
    for out in (proposed, applied):
        assert (out.value["answer"], problem in out.value["reason"]) == ("invalid", True)


def test_differences_are_named() -> None:
    assert differences(said(quantum=2), said()) == ["quantum is 1, this environment says 2"]
    assert differences(said(), said()) == []


# ---------------------------------------------------------------------- the manifest
def test_a_manifest_may_set_the_scheduler() -> None:
    table = """
    [orchestrator.scheduler]
    strategy = "drr"
    fairness_key = "tenant-and-binding"
    starvation_age = "1m"
    starvation_mode = "key"
    weights = { "tenant-a" = 3, "team:blue" = 2 }
    """
    found = parse(TRIGGER + table)
    assert isinstance(found, Manifest)
    assert found.scheduler == said(
        strategy="drr",
        fairness_key="tenant_and_binding",
        starvation_age_ms=60_000,
        starvation_mode="key",
        weights={"tenant-a": 3, "team:blue": 2},
    )
    never = parse(TRIGGER + '[orchestrator.scheduler]\nstarvation_age = "0s"\n')
    assert isinstance(never, Manifest)
    assert never.scheduler == said(starvation_age_ms=0)
    silent = parse(TRIGGER)
    assert isinstance(silent, Manifest)
    assert silent.scheduler is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('strategy = "lifo"', "orchestrator.scheduler.strategy is 'lifo', expected"),
        ("quantum = 0", "orchestrator.scheduler.quantum is 0, expected"),
        ('starvation_age = "soon"', "orchestrator.scheduler.starvation_age is 'soon', expected"),
        ("weights = { a = 0 }", "orchestrator.scheduler.weights.a is 0, expected"),
        ("weights = 3", "orchestrator.scheduler.weights is 3, expected a table"),
        ("fair = true", "orchestrator.scheduler.fair is not a key here"),
    ],
)
def test_a_scheduler_that_cannot_work_is_refused(line: str, problem: str) -> None:
    [found] = problems(TRIGGER + f"[orchestrator.scheduler]\n{line}\n")
    assert problem in found
