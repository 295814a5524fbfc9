"""What of a running application needs somebody."""

from dataclasses import replace
from typing import Any, cast

import pytest

from streams.core import scheduler_policy
from streams.core.wire import PartitionHalted, RowDispatch, SchedulerPolicy
from streams.edge.checkup import (
    GIVEN_BACK_MIN,
    LAG_RECORDS_MAX,
    LOSSES_MIN,
    OVERDUE_MS_MAX,
    Checkup,
    Dispatcher,
    Finding,
    Group,
    Level,
    Registry,
    diagnose,
    given_back,
    unlucky,
)
from streams.testing import policy
from tests.support import queue_summaries
from tests.support.dispatch_log import completed, matched, running
from tests.support.gate_log import KEY, gated
from tests.support.queue_summaries import summary
from tests.support.revisions import revision
from tests.support.stage_log import StageLog

NOW_MS = 1_700_000_000_000
DISPATCHER = Dispatcher(partition=0, revision=2, statuses={}, dead_letters=0)
GROUP = Group(
    id="harn.inbox",
    role="inbox",
    topic="trigger.inbox.envelopes",
    state="stable",
    members=1,
    lags={0: 1, 1: 0},
)
WELL = Checkup(
    at_ms=NOW_MS,
    versions={"harn-streams": "0.1.0"},
    bootstrap="kafka:9092",
    brokers=("1=kafka:9092",),
    topics=(),
    policy=policy(),
    registry=Registry(revision=2, broadcast=2, states={"active": 1}, policy=policy()),
    groups=(GROUP,),
    dispatchers=(DISPATCHER,),
    secrets={"github": None},
)


def live_rows(log: StageLog) -> list[RowDispatch]:
    return [cast("RowDispatch", row) for key, row in log.rows.items() if key.startswith("d:")]


def found(**changes: Any) -> list[Finding]:
    return diagnose(replace(WELL, **changes))


def dispatcher(**changes: Any) -> list[Finding]:
    return found(dispatchers=(replace(DISPATCHER, **changes),))


def test_an_application_that_is_well_needs_nobody() -> None:
    assert diagnose(WELL) == []


def test_a_topic_that_keeps_roles_from_starting_is_a_problem_and_drift_is_advice() -> None:
    drift, missing = ("x: drifted", False), ("y: is missing", True)
    findings = found(topics=(drift, missing))
    assert [(each.level, each.what) for each in findings] == [
        (Level.PROBLEM, "y: is missing"),
        (Level.ADVICE, "x: drifted"),
    ]


@pytest.mark.parametrize(
    ("timer", "where", "skip"),
    [
        (None, "", "trigger.dispatches/3/1042"),
        (
            "d:it's",
            ", at the timer of row d:it's",
            "trigger.dispatches/3/1042 --timer 'd:it'\"'\"'s'",
        ),
    ],
)
def test_a_halted_partition_is_named_with_what_halts_it(
    timer: str | None, where: str, skip: str
) -> None:
    halt: PartitionHalted = {
        "stage": "dispatch",
        "fold": "dispatch@1",
        "topic": "trigger.dispatches",
        "partition": 3,
        "offset": 1042,
        "timer": timer,
        "reason": "KeyError('x')",
        "member": "host-1",
    }
    [finding] = found(halted=(halt,))
    assert finding.level is Level.PROBLEM
    assert finding.what == (
        f"stage dispatch is halted before trigger.dispatches/3/1042{where}: KeyError('x')"
    )
    assert "`harn log tail trigger.dispatches --partition 3 --from 1042 --limit 1`" in (
        finding.remedy
    )
    assert "`harn stage resume dispatch 3`" in finding.remedy
    assert f"`harn stage skip {skip}`" in finding.remedy


def test_a_revision_that_is_not_broadcast_is_a_problem() -> None:
    registry = replace(WELL.registry, revision=3)  # type: ignore[type-var]
    [finding] = found(registry=registry)
    assert finding.level is Level.PROBLEM
    assert finding.what.startswith("revision 3 is published and not broadcast (the last one is 2)")


def test_settings_that_differ_from_the_policy_in_force_are_named() -> None:
    [finding] = found(policy=policy(lease_ms=30_000))
    assert finding.level is Level.ADVICE
    assert finding.what == "policy lease_ms is 15000 in force, and 30000 by the settings here"


def test_without_any_manifest_policies_are_not_compared() -> None:
    registry = Registry(revision=0, broadcast=0, states={}, policy=policy(lease_ms=1))
    [finding] = found(registry=registry, dispatchers=())
    assert finding.what.startswith("no manifest was ever applied")


@pytest.mark.parametrize(
    ("lags", "waiting"), [({0: 0}, ""), ({0: 3, 1: 4}, ", and 7 records wait")]
)
def test_a_role_that_nobody_runs_is_a_problem(lags: dict[int, int], waiting: str) -> None:
    [finding] = found(groups=(replace(GROUP, members=0, lags=lags),))
    assert finding == Finding(
        Level.PROBLEM,
        f"nobody runs role inbox (group harn.inbox has no member){waiting}",
        "start one: `harn orchestrator serve --role inbox`",
    )


def test_a_role_is_late_from_the_bound_on_and_its_latest_partition_is_named() -> None:
    assert found(groups=(replace(GROUP, lags={0: LAG_RECORDS_MAX - 1}),)) == []
    [finding] = found(groups=(replace(GROUP, lags={0: 1, 1: LAG_RECORDS_MAX - 1}),))
    assert finding.level is Level.PROBLEM
    assert f"{LAG_RECORDS_MAX} records behind" in finding.what
    assert finding.what.endswith(f"{LAG_RECORDS_MAX - 1} of them in partition 1")


def test_dead_letters_and_open_circuits_are_advice() -> None:
    two = (
        replace(DISPATCHER, dead_letters=2, open_circuits=("local:lib::f",)),
        replace(DISPATCHER, partition=1, dead_letters=1, open_circuits=("local:lib::f",)),
    )
    findings = found(dispatchers=two)
    assert {each.level for each in findings} == {Level.ADVICE}
    assert [each.what for each in findings] == [
        "3 dead letters wait for somebody",
        "the circuit of local:lib::f is open: its dispatches are parked",
    ]


def test_what_no_invoker_has_loaded_is_a_problem_once_it_was_given_back_for_a_while() -> None:
    bound = gated({})
    log = StageLog("dispatch")
    log.add("revision_published", revision(1, added=[bound]))
    log.add("event_matched", matched("d"))
    log.add("event_matched", matched("runs"))
    for fence in range(1, GIVEN_BACK_MIN + 1):
        assert given_back(live_rows(log)) == {}
        log.add("invocation_completed", completed("interrupted", "runs", fence=fence))
        log.add("invocation_completed", completed("unresolved", "d", fence=fence))
        waits = log.rows["d:d"]
        if fence < GIVEN_BACK_MIN:
            log.now_ms = waits["due_ms"]
            log.add("tick", {"due_ms": waits["due_ms"]})
    counted = given_back(live_rows(log))
    assert counted == {KEY: 1}
    first, second = (replace(DISPATCHER, partition=n, given_back=counted) for n in (0, 1))
    [finding] = found(dispatchers=(first, second))
    assert (finding.level, finding.what.partition(":")[0]) == (
        Level.PROBLEM,
        f"invokers give 2 dispatches of {KEY} back",
    )


def test_an_event_that_loses_one_invoker_after_the_other_is_named() -> None:
    log = StageLog("dispatch")
    log.add("revision_published", revision(1, added=[gated({})]))
    log.add("event_matched", matched("ok"))
    log.add("event_matched", matched("kills"))
    for fence in range(1, LOSSES_MIN + 1):
        assert unlucky(live_rows(log)) is None
        log.add("invocations_running", running("kills", fence=fence))
        log.now_ms = log.rows["d:kills"]["due_ms"]
        log.add("tick", {"due_ms": log.now_ms})
    [finding] = dispatcher(unlucky=unlucky(live_rows(log)))
    assert (finding.level, finding.what) == (
        Level.PROBLEM,
        f"3 invokers were lost while they ran event event-of-kills for {KEY}",
    )
    assert f"`harn trigger cancel event-of-kills --binding {KEY}`" in finding.remedy


def test_a_partition_that_has_not_folded_the_last_revision_is_named() -> None:
    behind = replace(DISPATCHER, partition=3, revision=1)
    [finding] = found(dispatchers=(DISPATCHER, behind))
    assert finding.level is Level.PROBLEM
    assert finding.what == "dispatch partitions 3 have not folded revision 2"


def test_a_timer_is_overdue_once_its_owner_should_have_fired_it() -> None:
    assert dispatcher(overdue_ms=NOW_MS - OVERDUE_MS_MAX) == []
    assert dispatcher(overdue_ms=NOW_MS + 1) == []
    [finding] = dispatcher(overdue_ms=NOW_MS - OVERDUE_MS_MAX - 1_000)
    assert finding.level is Level.PROBLEM
    assert finding.what == "a timer of dispatch partition 0 is 61 s overdue"


def test_a_secret_that_is_missing_here_is_advice() -> None:
    [finding] = found(secrets={"github": "x cannot be read"})
    assert finding.level is Level.ADVICE
    assert finding.what == "webhooks at 'github' cannot be checked from here: x cannot be read"


def test_live_dispatches_are_told_apart_by_what_they_wait_for() -> None:
    statuses = {
        "invoked": 1,
        "running": 2,
        "evaluating": 4,
        "waiting": 8,
        "returned": 16,
        "deferred": 32,
        "gated": 64,
        "parked": 128,
    }
    one = replace(DISPATCHER, statuses=statuses)
    assert (one.in_flight, one.retries, one.gated, one.parked) == (7, 56, 64, 128)


def old_backlog(**changes: Any) -> list[Finding]:
    in_force = queue_summaries.scheduler_policy(**{"starvation_age_ms": 60_000, **changes})
    age_ms = NOW_MS - 60_000
    one = summary(policy=in_force, oldest_ready_at_ms=age_ms, keys_total=2, workers=1)
    return found(queues=(one,))


def test_an_old_backlog_that_undoes_fairness_is_told_with_its_remedy() -> None:
    [finding] = old_backlog()
    assert finding.level is Level.ADVICE
    assert finding.what.startswith("queue triage has jobs older than 60 s")
    assert "HARN_SCHEDULER_STARVATION_MODE=key" in finding.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "fifo"},
        {"starvation_mode": "key"},
        {"starvation_age_ms": 60_001},
        {"starvation_age_ms": 0},
    ],
)
def test_a_backlog_that_undoes_nothing_is_not_told(changes: dict[str, Any]) -> None:
    assert old_backlog(**changes) == []


@pytest.mark.parametrize(
    ("age_ms", "workers", "told"), [(60_000, 0, True), (59_999, 0, False), (60_000, 1, False)]
)
def test_a_queue_without_a_worker_is_told(age_ms: int, workers: int, told: bool) -> None:
    one = summary(oldest_ready_at_ms=NOW_MS - age_ms, ready=1_200, workers=workers, shard=3)
    findings = found(queues=(one,))
    assert bool(findings) is told
    for finding in findings:
        assert finding.level is Level.ADVICE
        assert finding.what.startswith("queue triage#3 has 1,200 jobs ready, the oldest for 60 s")
        assert "`harn worker run triage`" in finding.remedy


def scheduled(in_force: Any, **changes: Any) -> list[Finding]:
    registry = Registry(
        revision=2,
        broadcast=2,
        states={"active": 1},
        policy=policy(scheduler=in_force),
        proposed=changes.pop("proposed", None),
    )
    return found(registry=registry, **changes)


def scheduler(**changes: Any) -> SchedulerPolicy:
    return cast("SchedulerPolicy", {**scheduler_policy.DEFAULT, **changes})


def test_variables_of_the_scheduler_that_are_not_in_force_are_named() -> None:
    here = scheduler(strategy="drr", quantum=2)
    [finding] = scheduled(scheduler(strategy="drr"), scheduler=here)
    assert finding.level is Level.ADVICE
    assert finding.what == (
        "the scheduler does not go by HARN_SCHEDULER_* here: quantum is 1, this environment says 2"
    )
    assert "[orchestrator.scheduler]" in finding.remedy
    [before_any_apply] = scheduled(None, scheduler=here)
    assert "strategy is 'fifo', this environment says 'drr'" in before_any_apply.what


def test_variables_that_nobody_has_set_or_that_are_in_force_say_nothing() -> None:
    drr = scheduler(strategy="drr")
    assert scheduled(drr) == []
    assert scheduled(drr, scheduler=drr, proposed=drr) == []


def test_a_members_proposal_that_a_manifest_overruled_is_named_once() -> None:
    drr = scheduler(strategy="drr")
    [member] = scheduled(scheduler(quantum=3), proposed=drr)
    assert member.what.startswith(
        "the scheduler does not go by what a member's environment proposed last: strategy"
    )
    assert len(scheduled(scheduler(quantum=3), proposed=drr, scheduler=drr)) == 1


def test_a_role_that_nobody_runs_is_told_once_however_many_topics_it_reads() -> None:
    empty = replace(GROUP, id="harn.relay", role="relay", members=0)
    [finding] = found(groups=(replace(empty, topic="worker.a"), replace(empty, topic="worker.b")))
    assert finding.what == (
        "nobody runs role relay (group harn.relay has no member), and 2 records wait"
    )
