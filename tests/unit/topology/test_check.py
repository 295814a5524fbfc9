"""Each invariant broken once, on the shipped topology, and named by the check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.broken_stages import STAGE_CASES
from tests.support.broken_topology import DAY_MS, FOLDS, TOPIC_CASES, Case, stage, topic
from topology import TOPOLOGY
from topology.check import Code, Problem, check, raise_if_broken
from topology.errors import TopologyError
from topology.layout import Layout
from topology.model import (
    Cleanup,
    PartitionRule,
    RetentionRule,
)

CASES = {**TOPIC_CASES, **STAGE_CASES}


def found(case: Case) -> list[Problem]:
    return check(case.topology, case.layout, bindings=case.bindings)


@pytest.mark.parametrize("name", CASES)
def test_a_broken_invariant_is_named_with_its_place_and_what_was_expected(name: str) -> None:
    case = CASES[name]
    problems = found(case)
    named = [each for each in problems if (each.code, each.where) == (case.code, case.where)]
    assert any(case.says in each.message for each in named), "\n".join(map(str, problems))


def test_every_invariant_is_broken_by_some_case() -> None:
    assert {case.code for case in CASES.values()} == set(Code)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(),
        Layout(partitions=4, replication_factor=1, min_insync_replicas=1),
        Layout(partitions=1, agent_turns_partitions=1),
    ],
)
def test_the_shipped_topology_is_clean(layout: Layout) -> None:
    assert check(TOPOLOGY, layout, bindings=FOLDS) == []


def test_the_bounds_of_times_and_ages_are_inclusive() -> None:
    layout = Layout(
        lease_ms=22_000,
        heartbeat_ttl_ms=22_000,
        drain_ms=22_000,
        heartbeat_interval_ms=2_000,
        retention_mailbox_ms=7 * DAY_MS,
        retention_output_ms=7 * DAY_MS,
        retention_audit_ms=7 * DAY_MS,
        longest_retry_ms=7 * DAY_MS - 22_000,
    )
    assert check(TOPOLOGY, layout) == []


def test_a_mailbox_kept_for_ever_asks_nothing_of_outputs() -> None:
    assert TOPOLOGY.topic("triggers.registry").retention is RetentionRule.FOREVER
    assert check(TOPOLOGY, Layout()) == []


def test_every_problem_is_reported_at_once() -> None:
    broken = replace(
        topic("trigger.outbox", cleanup=Cleanup.COMPACT, retention=RetentionRule.FOREVER),
        stages=stage("inbox", sinks=("nowhere",)).stages,
    )
    with pytest.raises(TopologyError) as caught:
        raise_if_broken(broken, Layout(lease_ms=1_000), bindings={})
    text = str(caught.value)
    assert "trigger.outbox: is compacted" in text
    assert "stage inbox: sink nowhere is not declared" in text
    assert "lease_ms: is 1000" in text
    assert "stage dispatch: has no fold" in text
    assert len(caught.value.problems) == 7


def test_a_clean_topology_raises_nothing() -> None:
    raise_if_broken(TOPOLOGY, Layout(), bindings=FOLDS)


def test_partition_rules_are_those_of_the_layout() -> None:
    uneven = topic("agent_turns", partitions=PartitionRule.MAILBOX)
    codes = {each.code for each in check(uneven, Layout())}
    assert codes == {Code.CO_PARTITIONING}
    assert check(uneven, Layout(partitions=6)) == []
