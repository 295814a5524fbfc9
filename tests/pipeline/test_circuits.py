"""A destination that is down for a while, in the whole pipeline, under storms."""

from __future__ import annotations

import pytest

from streams.core.circuit import FAILURES_MAX
from streams.testing import Chaos, PipelineDriver, binding, event, retry_policy

EVENTS = 60
PARTITIONS = 3
OUTAGE_MS = 10 * 60_000
MINUTE_MS = 60_000


def down_for_a_while(chaos: Chaos | None) -> PipelineDriver:
    """Every call fails for ten minutes, and works after that."""
    until: list[int] = []

    def call(_event: object) -> None:
        if driver.clock.now_ms < until[0]:
            raise ConnectionError("down")

    driver = PipelineDriver(handlers={"on_event": call}, partitions=PARTITIONS, chaos=chaos)
    driver.apply([binding("triage", retry=retry_policy("immediate", max_attempts=100))])
    until.append(driver.clock.now_ms + OUTAGE_MS)
    for number in range(EVENTS):
        driver.emit(event(f"e{number}"))
    return driver


def test_an_outage_costs_a_probe_a_minute_and_no_event() -> None:
    driver = down_for_a_while(None)
    began_ms = driver.clock.now_ms
    driver.run_until_idle()
    assert len(driver.runs) <= PARTITIONS * (FAILURES_MAX + 1) + EVENTS
    before = len(driver.runs)
    driver.advance(OUTAGE_MS - MINUTE_MS)
    probes = len(driver.runs) - before
    assert 0 < probes <= PARTITIONS * (OUTAGE_MS // MINUTE_MS - 1)
    driver.finish()
    assert driver.clock.now_ms - began_ms <= OUTAGE_MS + 2 * MINUTE_MS
    ended = driver.records("trigger.outbox", "dispatch_succeeded")
    assert len({each.value["event_id"] for each in ended}) == len(ended) == EVENTS
    assert not driver.records("trigger.dlq")
    assert not [key for rows in driver.rows("dispatch") for key in rows if key[:2] in ("o:", "d:")]
    assert driver.audit().word == "verified"


@pytest.mark.parametrize("seed", range(12))
def test_in_a_storm_every_circuit_closes_again_and_every_event_ends_once(seed: int) -> None:
    chaos = Chaos(seed=seed, crash_per_mille=30, zombie_per_mille=10, lose_invoker_per_mille=5)
    driver = down_for_a_while(chaos)
    driver.finish()
    ended = driver.records("trigger.outbox", "dispatch_succeeded")
    assert len({each.value["event_id"] for each in ended}) == len(ended) == EVENTS
    assert not driver.records("trigger.dlq")
    rows = driver.rows("dispatch")
    assert not [key for found in rows for key in found if key.startswith("d:")]
    assert not [
        found[key] for found in rows for key in found if key[:2] == "o:" and found[key]["episodes"]
    ]
    assert driver.audit().word == "verified"
