"""Records of goals and tasks, from their making to their end."""

from __future__ import annotations

import pytest

from streams.codec import Codec
from streams.core.turn.claim import Run, Skip, claimable_goal, claimable_job, decide
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.goal_spec import parse_goal_spec
from streams.core.turn.record import (
    DESCRIPTION_CHARS_MAX,
    RESULT_CHARS_MAX,
    Holder,
    claimed_goal,
    claimed_job,
    desired_key,
    ended_goal,
    ended_job,
    goal_key,
    job_key,
    new_goal,
    new_job,
    outcome_of,
    released_goal,
    released_job,
    resumed_goal,
    session_record_key,
)

CODEC = Codec()
HOLDER = Holder(token="host:1:agent-dispatch", host="host", fence=3)
TURN = AgentTurnEnvelope(job_id="j", session_id="s", payload_ref="g", enqueued_at_ms=0)
GOAL = new_goal("g", "s", parse_goal_spec({"objective": "win"}), tenant="acme", now_ms=1)
JOB = new_job("j", "s", "do it", agent_name="a", now_ms=1)


def test_8_12_a_goal_waits_without_an_owner_and_holds_its_specification() -> None:
    assert (GOAL["status"], GOAL["owner_host"]) == ("pending", "")
    assert GOAL["goal_spec"]["objective"] == "win"
    assert decide(TURN, claimable_goal(GOAL), now_ms=5) == Run(1)


def test_a_claim_names_its_holder_and_counts() -> None:
    goal = claimed_goal(GOAL, HOLDER, job_id="j", now_ms=5)
    job = claimed_job(JOB, HOLDER, now_ms=5)

    assert (goal["status"], goal["owner_host"], goal["dispatch_host"]) == (
        "running",
        HOLDER.token,
        "host",
    )
    assert (goal["job_id"], goal["claim_unix_ms"], goal["fence"], goal["attempt"]) == ("j", 5, 3, 1)
    assert (job["status"], job["claimed_by"], job["claim_unix_ms"]) == ("running", HOLDER.token, 5)
    assert claimed_job(job, HOLDER, now_ms=9)["attempt"] == 2


def test_what_is_given_back_may_be_claimed_again_at_once() -> None:
    goal = released_goal(claimed_goal(GOAL, HOLDER, job_id="j", now_ms=5), now_ms=6)
    job = released_job(claimed_job(JOB, HOLDER, now_ms=5), now_ms=6)

    assert (goal["status"], goal["owner_host"]) == ("pending", "")
    assert (job["status"], job["claimed_by"]) == ("pending", "")
    assert decide(TURN, claimable_goal(goal), now_ms=6) == Run(2)
    assert decide(TURN, claimable_job(job), now_ms=6) == Run(2)


def test_an_end_names_who_came_to_it_and_is_never_left() -> None:
    job = ended_job(
        claimed_job(JOB, HOLDER, now_ms=5), "completed", executed_by="w", result="ok", now_ms=7
    )
    goal = ended_goal(GOAL, "failed", executed_by="w", error="no", now_ms=7)

    assert (job["status"], job["executed_by"], job["result"]) == ("completed", "w", "ok")
    assert (goal["status"], goal["executed_by"], goal["error"]) == ("failed", "w", "no")
    assert decide(TURN, claimable_job(job), now_ms=8) == Skip("terminal")
    for leave in (
        lambda: claimed_job(job, HOLDER, now_ms=8),
        lambda: released_job(job, now_ms=8),
        lambda: ended_job(job, "failed", executed_by="w", now_ms=8),
        lambda: claimed_goal(goal, HOLDER, job_id="j", now_ms=8),
        lambda: released_goal(goal, now_ms=8),
        lambda: ended_goal(goal, "completed", executed_by="w", now_ms=8),
        lambda: resumed_goal(goal, now_ms=8),
    ):
        with pytest.raises(AssertionError):
            leave()


def test_a_paused_goal_is_skipped_until_it_is_resumed() -> None:
    paused = ended_goal(GOAL, "paused", executed_by="w", now_ms=7)

    assert decide(TURN, claimable_goal(paused), now_ms=8) == Skip("paused")
    assert decide(TURN, claimable_goal(resumed_goal(paused, now_ms=9)), now_ms=9) == Run(1)


def test_results_and_errors_are_cut_and_descriptions_refused_at_their_bounds() -> None:
    job = ended_job(
        JOB, "completed", executed_by="w", result="r" * 5_000, error="e" * 5_000, now_ms=7
    )

    assert len(job["result"] or "") == RESULT_CHARS_MAX
    assert len(job["error"] or "") == 1_024
    new_job("j", "s", "d" * DESCRIPTION_CHARS_MAX, now_ms=1)
    with pytest.raises(ValueError, match="description has 65537 characters, expected at most"):
        new_job("j", "s", "d" * (DESCRIPTION_CHARS_MAX + 1), now_ms=1)


def test_records_are_what_the_wire_carries() -> None:
    for schema, value in (("agent_goal", GOAL), ("agent_job", JOB)):
        assert CODEC.decode(CODEC.encode(schema, value)) == (schema, value)


def test_keys_of_different_things_differ_whatever_their_ids() -> None:
    found = {make("x") for make in (goal_key, job_key, session_record_key, desired_key)}

    assert found == {"goal:x", "job:x", "session:x", "desired:x"}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("completed", "completed"), ("failed", "failed"), ("paused", "completed")],
)
def test_an_outcome_says_what_became_of_the_record(status: str, outcome: str) -> None:
    assert outcome_of(status) == outcome  # type: ignore[arg-type]
