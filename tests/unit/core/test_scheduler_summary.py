"""What a summary says of many keys is what adding all of them up would say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.core.scheduler import summary as summary_module
from tests.support.scheduler_log import SchedulerLog, claimed, ready_job

NAMED_MAX = 2
TENANTS = "abcdef"

_JOBS = st.lists(st.tuples(st.sampled_from(TENANTS), st.integers(0, 50)), min_size=1, max_size=30)


@pytest.fixture(autouse=True)
def few_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_module, "KEYS_MAX", NAMED_MAX)


def total(found: dict[str, Any], field: str) -> int:
    others = found["other_keys"]
    return sum(each[field] for each in (*found["keys"], *(() if others is None else (others,))))


@given(jobs=_JOBS, capacity=st.integers(0, 12), done=st.integers(0, 12), cap=st.integers(0, 2))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_and_the_others_add_up_to_all(
    jobs: list[tuple[str, int]], capacity: int, done: int, cap: int
) -> None:
    log = SchedulerLog(strategy="drr", max_concurrent_per_key=cap, starvation_age_ms=0)
    at_ms = log.now_ms
    log.relay(
        [
            ready_job(number, tenant, occurred_at_ms=at_ms - age_ms)
            for number, (tenant, age_ms) in enumerate(jobs)
        ],
        0,
    )
    claims = claimed(log.beat(capacity=capacity))
    acked = min(done, len(claims))
    claims += claimed(log.ack(*claims[:done]))
    found = log.summary()

    had = [int(claim.partition(".")[0]) for claim in claims]
    keys = [jobs[number][0] for number in had]
    waiting = [number for number in range(len(jobs)) if number not in had]
    assert found["ready"] == total(found, "ready_jobs") == len(waiting)
    assert found["in_flight"] == total(found, "in_flight") == len(claims) - acked
    assert total(found, "selected_total") == len(claims)
    assert found["keys_total"] == len({tenant for tenant, _ in jobs})
    assert len(found["keys"]) == min(NAMED_MAX, found["keys_total"])
    assert (found["other_keys"] is None) == (found["keys_total"] <= NAMED_MAX)
    ages = [jobs[number][1] for number in waiting]
    assert found["oldest_ready_at_ms"] == (at_ms - max(ages) if ages else None)
    work = Counter(jobs[number][0] for number in waiting) + Counter(keys[acked:])
    most = sorted(work, key=lambda key: (-work[key], key))[:NAMED_MAX]
    assert set(most) <= {each["fairness_key"] for each in found["keys"]}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(summary_module, "KEYS_MAX", len(TENANTS))
        all_named = log.summary()
    assert all_named["other_keys"] is None
    for field in ("deficit", "deferred_total", "starvation_promotions_total"):
        assert total(found, field) == total(all_named, field), field
    for each in found["keys"]:
        assert each["ready_jobs"] == sum(jobs[n][0] == each["fairness_key"] for n in waiting)
        assert each["selected_total"] == keys.count(each["fairness_key"])
