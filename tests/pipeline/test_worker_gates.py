"""Gates of a consumer manifest, from the event to the handler: what runs when, and who is lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from streams.handler_api import Context
from streams.testing import Chaos, PipelineDriver
from tests.pipeline.test_worker_jobs import CLAIMS, RESPONSES, consumer_of, driver_with
from tests.support import history

MINUTE_MS = 60_000
EVENTS = [f"e{number}" for number in range(6)]


def gated(driver: PipelineDriver, *workers: str, **gates: Any) -> None:
    consumer = consumer_of({"triage": lambda _event: None}, **gates)
    for name in workers:
        driver.work(consumer, "triage", consumer_id=name, concurrency=4, claim_ttl_ms=MINUTE_MS)


def overlapping(driver: PipelineDriver, duration_ms: int) -> int:
    """How many handlers ran at once, at most."""
    starts = [run.started_ms for run in driver.runs]
    return max(
        sum(1 for other in starts if other <= start < other + duration_ms) for start in starts
    )


def outcomes(driver: PipelineDriver) -> list[str]:
    return sorted(each.value["outcome"] for each in driver.records(RESPONSES, "job_response"))


def test_concurrency_holds_for_two_workers_together() -> None:
    driver = driver_with(*EVENTS, duration_ms=1_000)
    gated(driver, "w1", "w2", concurrency={"max": 2})
    driver.finish()
    assert outcomes(driver) == ["succeeded"] * 6
    assert overlapping(driver, 1_000) == 2
    history.the_queues_hold(driver)
    assert driver.audit().word == "verified"


def test_throttle_starts_jobs_as_planned() -> None:
    driver = driver_with(*EVENTS)
    gated(driver, "w1", "w2", throttle={"max": 2, "period": "1m"})
    driver.finish()
    starts = [run.started_ms for run in driver.runs]
    assert len(starts) == 6
    assert all(third - first >= MINUTE_MS for first, third in zip(starts, starts[2:], strict=False))
    assert {run.context.attempt for run in driver.runs} == {1}
    history.the_queues_hold(driver)


def test_what_is_too_much_is_skipped_and_answered() -> None:
    driver = driver_with(*EVENTS)
    gated(driver, "w1", rate_limit={"max": 4, "period": "1h"})
    driver.finish()
    assert outcomes(driver) == ["skipped"] * 2 + ["succeeded"] * 4
    assert len(driver.records(CLAIMS, "job_acked")) == 6
    history.the_queues_hold(driver)


def test_a_burst_comes_to_its_last_job() -> None:
    driver = driver_with(*EVENTS)
    gated(driver, "w1", "w2", debounce={"key": "event.kind", "period": "1m"})
    driver.finish()
    assert [run.context.event_id for run in driver.runs] == [EVENTS[-1]]
    assert outcomes(driver) == ["skipped"] * 5 + ["succeeded"]


@pytest.mark.parametrize("seed", range(6))
def test_limits_hold_whoever_is_lost(seed: int) -> None:
    ran: list[tuple[str, int]] = []

    def note(_event: object, context: Context) -> None:
        ran.append((context.event_id, context.attempt))

    driver = driver_with(*EVENTS, duration_ms=500, chaos=Chaos.storm(seed))
    consumer = consumer_of(
        {"triage": note}, concurrency={"max": 1}, throttle={"max": 3, "period": "10s"}
    )
    for name in ("w1", "w2"):
        driver.work(consumer, "triage", consumer_id=name, concurrency=2, claim_ttl_ms=MINUTE_MS)
    driver.finish()
    assert {event_id for event_id, _ in ran} == set(EVENTS)
    history.the_queues_hold(driver)
    assert len(driver.records(CLAIMS, "job_acked")) == len(EVENTS)
    passes = sorted(
        passed["at_ms"]
        for each in driver.records(CLAIMS, "job_admitted")
        for passed in each.value["passed"]
        if passed["gate"] == "throttle"
    )
    assert all(before <= after for before, after in itertools.pairwise(passes))
