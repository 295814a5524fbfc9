"""Retries of a whole pipeline: each attempt starts exactly when the schedule says."""

import itertools

import pytest

from streams.core.wire import RetryPolicy
from streams.handler_api import Denied, Unavailable
from streams.testing import PipelineDriver, binding, event, retry_policy
from streams.testing.invoker import Run

SECOND_MS = 1_000


def failing(*_: object) -> None:
    raise RuntimeError("not today")


def waits(runs: list[Run]) -> list[int]:
    """Milliseconds between the attempts."""
    starts = [run.started_ms for run in runs]
    return [later - earlier for earlier, later in itertools.pairwise(starts)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (retry_policy("immediate", max_attempts=3), [0, 0]),
        (retry_policy("linear", max_attempts=4, delay_ms=2_500), [2_500] * 3),
        (
            retry_policy("exponential", max_attempts=5, delay_ms=SECOND_MS, cap_ms=3 * SECOND_MS),
            [1_000, 2_000, 3_000, 3_000],
        ),
        (
            retry_policy("svix"),
            [5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000],
        ),
    ],
)
def test_attempts_start_as_the_schedule_says(policy: RetryPolicy, expected: list[int]) -> None:
    driver = PipelineDriver(handlers={"on_event": failing})
    driver.apply([binding("triage", retry=policy)])
    driver.emit(event())
    driver.finish()
    assert waits(driver.runs) == expected
    [moved] = driver.records("trigger.dlq", "dlq_moved")
    assert (moved.value["reason"], moved.value["attempt_count"]) == (
        "retry_exhausted",
        policy["max_attempts"],
    )
    assert driver.audit().word == "verified"


def denied(*_: object) -> None:
    raise Denied("403")


def unavailable(*_: object) -> None:
    raise Unavailable("503", after_ms=7_000)


def test_a_handler_says_whose_fault_it_was() -> None:
    """Vector 2-24, as decided: what is denied is a dead letter, so that it can be found."""
    driver = PipelineDriver(handlers={"denied": denied, "unavailable": unavailable})
    twice = retry_policy("immediate", max_attempts=2)
    driver.apply(
        [
            binding("denied", handler="denied", retry=twice),
            binding("unavailable", handler="unavailable", retry=twice),
        ]
    )
    driver.emit(event())
    driver.finish()
    moved = {
        seen.value["trigger_id"]: seen.value for seen in driver.records("trigger.dlq", "dlq_moved")
    }
    assert {
        name: (each["reason"], each["error_class"], each["attempt_count"])
        for name, each in moved.items()
    } == {
        "denied": ("denied", "auth_failed", 1),
        "unavailable": ("retry_exhausted", "provider_5xx", 2),
    }
    attempts = driver.records("trigger.attempts", "attempt_recorded")
    outcomes = [(seen.value["trigger_id"], seen.value["outcome"]) for seen in attempts]
    assert sorted(outcomes) == [("denied", "denied"), *[("unavailable", "failed")] * 2]
    assert waits([run for run in driver.runs if run.context.trigger_id == "unavailable"]) == [7_000]
    assert driver.audit().word == "verified"
