"""`worker://<queue>` in the whole pipeline, under storms: one job for each dispatch."""

from __future__ import annotations

import pytest

from streams.testing import Chaos, PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "triage"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "worker://triage"
concurrency = { key = "event.tenant_id", max = 1 }
"""

EVENTS = 30


@pytest.mark.parametrize("seed", range(6))
def test_every_event_is_one_job_whoever_else_produces_to_the_queue(seed: int) -> None:
    chaos = Chaos(seed=seed, crash_per_mille=60, zombie_per_mille=30, duplicate_per_mille=50)
    driver = PipelineDriver(partitions=3, chaos=chaos)
    driver.apply(bindings_of(MANIFEST))
    for number in range(EVENTS):
        driver.emit(event(f"e{number}", kind="a", tenant_id=f"tenant-{number % 2}"))
    driver.kafka.append("worker.triage", b'{"of": "another"}', key=b"x", headers=[], partition=0)
    driver.finish()
    jobs = driver.records("worker.triage", "trigger_dispatch")
    assert sorted(each.value["event"]["id"] for each in jobs) == sorted(
        f"e{number}" for number in range(EVENTS)
    )
    done = driver.records("trigger.outbox", "dispatch_succeeded")
    assert {each.value["dispatch_id"] for each in done} == {
        each.value["dispatch_id"] for each in jobs
    }
    assert driver.runs == []
    assert driver.audit().word == "verified"
