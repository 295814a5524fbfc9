"""Retries of a whole pipeline: each attempt starts exactly when the schedule says."""

import itertools

import pytest

from streams.core.wire import RetryPolicy
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
