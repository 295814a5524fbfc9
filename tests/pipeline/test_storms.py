"""The whole pipeline under seeded interleavings, crashes, zombies, repeats and lost invokers.

A failing seed is in the test's name: `storm(seed)` is the same run again.
"""

import pytest

from streams.testing import Chaos, PipelineDriver
from tests.support import history
from tests.support.weather import LEASE_MS, storm

SEEDS = 200
SEEDS_A_TEST = 10


def check(driver: PipelineDriver) -> None:
    history.every_event_has_one_terminal_outcome(driver)
    history.a_delivery_is_matched_once(driver)
    history.nothing_is_left(driver)
    history.attempts_are_numbered_without_gap(driver)
    history.fences_only_grow(driver)
    history.one_outcome_counts_for_each_attempt(driver)
    history.no_retry_starts_early(driver)
    history.no_lease_is_lost_before_its_end(driver, LEASE_MS)
    history.nothing_is_written_twice(driver)
    history.a_binding_ends_after_everything_of_it(driver)
    history.the_audit_is_clean(driver)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_every_promise_holds_in_every_storm(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        try:
            check(storm(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("seed", range(5))
def test_every_promise_holds_in_fair_weather(seed: int) -> None:
    driver = storm(seed, chaos=Chaos(seed=seed))
    check(driver)
    assert driver.records("triggers.lifecycle", "InvocationLost") == []
    assert len(driver.runs) == len(driver.records("trigger.attempts", "attempt_recorded"))


def test_a_storm_meets_what_it_is_for() -> None:
    drivers = [storm(seed) for seed in range(10)]
    assert sum(driver.members.crashed for driver in drivers) > 50
    assert sum(driver.members.fenced for driver in drivers) > 10
    kinds = {seen.kind for driver in drivers for seen in driver.records("triggers.lifecycle")}
    assert {
        "EventDeduplicated",
        "EventUnmatched",
        "InvocationLost",
        "OutcomeRefused",
        "RetryScheduled",
        "DlqMoved",
    } <= kinds
