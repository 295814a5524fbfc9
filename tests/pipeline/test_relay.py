"""The relay in the whole pipeline, under storms: the mailbox hears of every job once, in order."""

from __future__ import annotations

from typing import Any

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
"""

EVENTS = 40


def heard(driver: PipelineDriver) -> tuple[list[str], list[int]]:
    """What a scheduler that knows one number a shard takes: event ids, and offsets of no jobs."""
    jobs: list[str] = []
    rejected: list[int] = []
    reached: dict[int | None, int] = {}
    for seen in driver.records("worker.requests", "jobs_ready", "job_rejected"):
        value: Any = seen.value
        known = reached.get(value["shard"], 0)
        if seen.kind == "job_rejected":
            if value["offset"] >= known:
                rejected.append(value["offset"])
                reached[value["shard"]] = value["offset"] + 1
            continue
        jobs += [each["event_id"] for each in value["jobs"] if each["offset"] >= known]
        reached[value["shard"]] = max(known, value["next_offset"])
    return jobs, rejected


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_every_job_is_told_once_whoever_is_lost(seed: int, shards: int) -> None:
    driver = PipelineDriver(partitions=3, chaos=Chaos.storm(seed))
    if shards > 1:
        value = {
            "queue": "triage",
            "shards": shards,
            "shard_by": "tenant",
            "configured_at": "2026-01-01T00:00:00.000Z",
            "configured_by": "test",
        }
        driver.append("worker.queues", "queue_configured", value, key="\0triage")
    driver.apply(bindings_of(MANIFEST))
    driver.kafka.append("worker.triage", b"{}", key=b"x", headers=[], partition=0)
    for number in range(EVENTS):
        driver.emit(event(f"e{number}", kind="a", tenant_id=f"tenant-{number % 5}"))
    driver.finish()

    enqueued = [
        each.value["event"]["id"] for each in driver.records("worker.triage", "trigger_dispatch")
    ]
    jobs, rejected = heard(driver)
    assert sorted(jobs) == sorted(enqueued)
    assert rejected, "what is no job was told"
    assert len(set(enqueued)) == EVENTS
    if shards == 1:
        assert jobs == enqueued
    assert driver.kafka.partitions("worker.triage.claims") == 1
    assert driver.audit().word == "verified"
