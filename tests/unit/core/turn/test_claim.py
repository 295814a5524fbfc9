"""Claims of turns: who may run one, who waits, and what ends without running."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.turn.claim import (
    CLAIM_TTL_MS,
    ENDED,
    Claimable,
    Decision,
    Expire,
    Run,
    Skip,
    Wait,
    claimable_goal,
    claimable_job,
    decide,
)
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.wire import AgentGoal, AgentJob, AgentJobStatus

NOW_MS = 1_800_000_000_000
TURN = AgentTurnEnvelope(job_id="j", session_id="s", payload_ref="goal-1", enqueued_at_ms=0)
LATE = replace(TURN, deadline_ms=NOW_MS - 10_000)
PENDING = Claimable(status="pending")
STATUSES: tuple[AgentJobStatus, ...] = get_args(AgentJobStatus)


def running(age_ms: int, *, fence: int = 0, attempt: int = 1) -> Claimable:
    return Claimable(
        status="running",
        claimed_by="other:1",
        alive_at_ms=NOW_MS - age_ms,
        fence=fence,
        attempt=attempt,
    )


CASES: list[tuple[str, AgentTurnEnvelope, Claimable | None, int | None, Decision]] = [
    ("nothing is known of it", TURN, None, None, Skip("unknown_record")),
    ("nothing is known of it, and late", LATE, None, None, Skip("unknown_record")),
    ("8-17 it was done", TURN, Claimable(status="completed"), None, Skip("terminal")),
    ("it failed", TURN, Claimable(status="failed"), None, Skip("terminal")),
    ("it was cancelled", TURN, Claimable(status="cancelled"), None, Skip("terminal")),
    ("it has ended, and late", LATE, Claimable(status="completed"), None, Skip("terminal")),
    ("it is paused", TURN, Claimable(status="paused"), None, Skip("paused")),
    ("it is paused, and late", LATE, Claimable(status="paused"), None, Skip("paused")),
    ("it waits", TURN, PENDING, None, Run(1)),
    ("its worker was lost", TURN, Claimable(status="orphaned", attempt=2), None, Run(3)),
    ("it was released", TURN, Claimable(status="pending", claimed_by="x", attempt=1), 4, Run(2)),
    ("of a later release", TURN, Claimable(status="unknown"), None, Wait(None)),
    ("8-18 it runs elsewhere", TURN, running(0), None, Wait(NOW_MS + CLAIM_TTL_MS)),
    ("it runs elsewhere, for long", TURN, running(CLAIM_TTL_MS - 1), None, Wait(NOW_MS + 1)),
    ("it runs elsewhere, and late", LATE, running(1_000), None, Wait(NOW_MS + 3_599_000)),
    ("8-19 its claim is too old", TURN, running(CLAIM_TTL_MS), None, Run(2, "other:1")),
    ("its claim is too old, and late", LATE, running(CLAIM_TTL_MS), None, Expire("")),
    ("its claim is of the future", TURN, running(-5), None, Wait(NOW_MS + CLAIM_TTL_MS + 5)),
    ("it runs, but nobody claimed it", TURN, Claimable(status="running"), None, Run(1)),
    ("its owner was fenced", TURN, running(0, fence=3), 4, Run(2, "other:1")),
    ("its owner was fenced, and late", LATE, running(0, fence=3), 4, Expire("")),
    ("its owner is this one", TURN, running(0, fence=4), 4, Wait(None)),
    ("its owner is this one, for long", TURN, running(CLAIM_TTL_MS, fence=4), 4, Wait(None)),
    ("its owner is this one, and late", LATE, running(0, fence=4), 4, Wait(None)),
    ("this owner was fenced", TURN, running(0, fence=5), 4, Wait(None)),
    ("this owner was fenced long ago", TURN, running(CLAIM_TTL_MS, fence=5), 4, Wait(None)),
    ("8-20 it is late", LATE, PENDING, None, Expire("")),
]


@pytest.mark.parametrize(
    ("envelope", "record", "fence", "decision"),
    [pytest.param(*case[1:], id=case[0]) for case in CASES],
)
def test_what_is_done_with_a_turn(
    envelope: AgentTurnEnvelope, record: Claimable | None, fence: int | None, decision: Decision
) -> None:
    found = decide(envelope, record, now_ms=NOW_MS, fence=fence)

    if isinstance(decision, Expire):
        assert found == Expire("expired: its deadline had passed 10000 ms before it could be run")
    else:
        assert found == decision


def test_every_status_has_a_case() -> None:
    assert {case[2].status for case in CASES if case[2] is not None} == set(STATUSES)


@pytest.mark.parametrize(("deadline_ms", "expires"), [(99, True), (100, False), (101, False)])
def test_a_turn_at_its_deadline_is_run(deadline_ms: int, expires: bool) -> None:
    found = decide(replace(TURN, deadline_ms=deadline_ms), PENDING, now_ms=100)

    assert isinstance(found, Expire) is expires


def test_the_age_limit_of_claims_is_a_setting() -> None:
    assert decide(TURN, running(10), now_ms=NOW_MS, ttl_ms=10) == Run(2, "other:1")
    assert decide(TURN, running(10), now_ms=NOW_MS, ttl_ms=11) == Wait(NOW_MS + 1)


_records = st.builds(
    Claimable,
    status=st.sampled_from(STATUSES),
    claimed_by=st.sampled_from(["", "w"]),
    alive_at_ms=st.none() | st.integers(0, 200),
    fence=st.integers(0, 5),
    attempt=st.integers(0, 3),
)
_turns = st.builds(replace, st.just(TURN), deadline_ms=st.none() | st.integers(1, 200))


@given(_turns, _records, st.integers(0, 200), st.none() | st.integers(0, 5))
def test_nothing_that_ended_runs_and_what_waits_becomes_another_answer(
    envelope: AgentTurnEnvelope, record: Claimable, now_ms: int, fence: int | None
) -> None:
    found = decide(envelope, record, now_ms=now_ms, ttl_ms=50, fence=fence)

    assert isinstance(found, Skip) is (record.status in {*ENDED, "paused"})
    if isinstance(found, Wait):
        assert record.status in ("running", "unknown")
        if found.until_ms is not None:
            assert found.until_ms > now_ms
            later = decide(envelope, record, now_ms=found.until_ms, ttl_ms=50, fence=fence)
            assert isinstance(later, Run | Expire)
            before = decide(envelope, record, now_ms=found.until_ms - 1, ttl_ms=50, fence=fence)
            assert before == found
    if isinstance(found, Run):
        assert not envelope.expired_at(now_ms)
        assert found.attempt == record.attempt + 1


def goal(**fields: object) -> AgentGoal:
    value: AgentGoal = {
        "goal_id": "g",
        "session_id": "s",
        "job_id": "j",
        "tenant": "",
        "agent_name": "",
        "status": "running",
        "goal_spec": {
            "objective": "win",
            "end_state": "",
            "validation_cmd": None,
            "max_iterations": 20,
            "constraints": [],
        },
        "owner_host": "w",
        "claim_unix_ms": 10,
        "dispatch_host": "h",
        "executed_by": "",
        "fence": 2,
        "attempt": 1,
        "iteration_count": 3,
        "iterations": [],
        "result": None,
        "error": None,
        "created_at_ms": 1,
        "updated_at_ms": 90,
    }
    return {**value, **fields}  # type: ignore[typeddict-item]


def test_each_iteration_of_a_goal_shows_that_its_holder_lives() -> None:
    found = claimable_goal(goal())

    assert found == Claimable(status="running", claimed_by="w", alive_at_ms=90, fence=2, attempt=1)
    assert claimable_goal(goal(claim_unix_ms=None)).alive_at_ms is None


def test_a_claim_of_a_task_is_as_old_as_it_is() -> None:
    job: AgentJob = {
        "job_id": "j",
        "session_id": "s",
        "tenant": "",
        "agent_name": "",
        "description": "do it",
        "dependencies": [],
        "status": "running",
        "claimed_by": "w",
        "claim_unix_ms": 10,
        "dispatch_host": "h",
        "executed_by": "",
        "fence": 2,
        "attempt": 1,
        "result": None,
        "error": None,
        "created_at_ms": 1,
        "updated_at_ms": 90,
    }

    assert claimable_job(job) == Claimable(
        status="running", claimed_by="w", alive_at_ms=10, fence=2, attempt=1
    )
