"""What may follow what on a queue's claims: each broken invariant is named by its record."""

from __future__ import annotations

from typing import Any

import pytest

from streams.audit.claim_history import ClaimHistory
from streams.core.record import Position

Told = list[tuple[str, dict[str, Any]]]


def claimed(
    fence: int = 1, *, job: str = "0", at: int = 0, until: int = 100, key: str = "a"
) -> Any:
    value = {
        "job_event_id": job,
        "claim_id": f"{job}.{fence}",
        "fence": fence,
        "fairness_key": key,
        "claimed_at_ms": at,
        "expires_at_ms": until,
    }
    return "job_claimed", value


def about(kind: str, fence: int = 1, *, job: str = "0", **more: Any) -> Any:
    return kind, {"job_event_id": job, "claim_id": f"{job}.{fence}", "skipped_by": None, **more}


def broken(told: Told, *, cap: int = 0, whole: bool = True) -> list[tuple[int, str]]:
    history = ClaimHistory("triage", cap=cap, whole=whole)
    return [
        (offset, each.what)
        for offset, (kind, value) in enumerate(told)
        for each in history.add(Position("worker.triage.claims", 0, offset), kind, value)
    ]


RENEWED = about("claim_renewed", expires_at_ms=200)
RELEASED = about("job_released")
EXPIRED = about("claim_expired", expired_at_ms=100)
ACKED = about("job_acked")
PURGED = about("job_purged")
DEAD = about("job_dead")


@pytest.mark.parametrize(
    "told",
    [
        [claimed(), ACKED],
        [claimed(), RENEWED, ACKED],
        [claimed(), RELEASED, claimed(2), about("job_acked", 2)],
        [claimed(), EXPIRED, claimed(2, at=100), about("claim_refused"), about("job_acked", 2)],
        # Expired and not superseded still counts, and may be revived.
        [claimed(), EXPIRED, ACKED],
        [claimed(), EXPIRED, RENEWED, ACKED],
        [PURGED],
        [claimed(), EXPIRED, DEAD],
        [about("job_acked", 0, skipped_by="rate_limit")],
        [claimed(), claimed(job="1"), about("job_acked", job="1"), ACKED],
    ],
)
def test_what_a_scheduler_may_say(told: Told) -> None:
    assert broken(told) == []


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ([claimed(), claimed(2, at=50)], "claim 0.1 is in force until 100"),
        (
            [claimed(2), about("job_released", 2), claimed(2)],
            "its fence is 2, expected more than 2",
        ),
        ([claimed(), ACKED, claimed(2)], "the job was acked before"),
        ([claimed(), ACKED, ACKED], "the job was acked before"),
        ([claimed(), RELEASED, claimed(2), ACKED], "claim 0.1 is not the job's last one, 0.2"),
        ([ACKED], "claim 0.1 is not the job's last one, none"),
        ([claimed(), RELEASED, claimed(2), RENEWED], "claim 0.1 is not the job's last one, 0.2"),
        ([claimed(), about("claim_expired", expired_at_ms=99)], "in force until 100, at 99"),
        ([claimed(), RELEASED, EXPIRED], "the claim is not in force"),
        ([claimed(), PURGED], "claim 0.1 is in force"),
        ([claimed(), DEAD], "claim 0.1 is in force"),
        ([PURGED, DEAD], "the job was purged before"),
    ],
)
def test_what_no_scheduler_may_say(told: Told, what: str) -> None:
    [(offset, found)] = broken(told)
    assert offset == len(told) - 1
    assert what in found
    assert found.startswith(f"{told[-1][0]} of job 0: ")


def test_a_key_has_no_more_claims_than_its_cap() -> None:
    told: Told = [claimed(job="0"), claimed(job="1"), claimed(job="2", key="b")]
    assert broken(told, cap=2) == []
    assert broken([*told, claimed(job="3")], cap=2) == [
        (3, "job_claimed of job 3: fairness key 'a' has 3 claims, expected at most 2")
    ]
    freed: Told = [*told, about("job_acked", job="0"), claimed(job="3")]
    assert broken(freed, cap=2) == []
    expired: Told = [*told, EXPIRED, claimed(job="3"), RENEWED]
    # The one that was given up is revived: its key has one too many, which nobody claimed.
    assert broken(expired, cap=2) == []


def test_where_the_beginning_is_gone_a_job_is_taken_at_its_word() -> None:
    assert broken([ACKED], whole=False) == []
    assert broken([RENEWED, claimed(2)], whole=False) != []


def passed(gate: str, most: int, at: int = 0, period: int | None = None) -> dict[str, Any]:
    return {"gate": gate, "key": "k", "max": most, "period_ms": period, "at_ms": at}


def admitted(*passes: dict[str, Any], job: str = "0", fence: int = 1) -> Any:
    return about("job_admitted", fence, job=job, trigger_id="t", passed=list(passes))


def test_slots_are_held_until_the_claim_ends() -> None:
    slot = passed("concurrency", 1)
    told = [claimed(), claimed(job="1"), admitted(slot)]
    assert broken([*told, ACKED, admitted(slot, job="1")]) == []
    assert broken([*told, RELEASED, admitted(slot, job="1")]) == []
    assert broken([*told, EXPIRED, admitted(slot, job="1")]) == []
    what = "concurrency of trigger 't' at key 'k' has 2 at once, expected at most 1"
    assert broken([*told, admitted(slot, job="1")]) == [
        (3, f"job_admitted of job 1: {what}"),
    ]


def test_a_limit_may_have_been_greater_when_the_last_one_passed() -> None:
    told = [claimed(), claimed(job="1"), admitted(passed("concurrency", 2))]
    assert broken([*told, admitted(passed("concurrency", 1), job="1")]) == []


def test_an_admission_needs_the_claim_in_force() -> None:
    assert broken([claimed(), RELEASED, admitted()])[0][1].endswith("the claim is not in force")


def test_windows_are_judged_by_when_jobs_passed_in_whatever_order_they_are_told() -> None:
    def told(*passes: int) -> Told:
        return [
            each
            for number, at in enumerate(passes)
            for each in (
                claimed(job=str(number)),
                admitted(passed("throttle", 2, at, 1_000), job=str(number)),
            )
        ]

    assert broken(told(0, 1_000, 0, 1_000, 2_000)) == []
    what = "let 3 pass from 500 to 1001, expected at most 2 in 1000 ms"
    for passes in ((0, 1_000, 500, 1_001), (0, 1_000, 1_001, 500)):
        (found,) = broken(told(*passes))
        assert found[0] == 7
        assert what in found[1]


def test_a_job_that_is_delivered_again_has_passed_its_windows_once() -> None:
    window = passed("rate_limit", 1, 0, 1_000)
    told = [claimed(), admitted(window), RELEASED, claimed(2), admitted(window, fence=2)]
    assert broken(told) == []
