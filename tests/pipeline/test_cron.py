"""Cron in the whole pipeline: each tick once, whatever crashes or comes twice."""

from __future__ import annotations

from collections import Counter

import pytest

from streams.testing import Chaos, PipelineDriver
from tests.support.triggers import bindings_of

MINUTE_MS = 60_000

MANIFEST = """
[[triggers]]
id = "every-minute"
kind = "cron"
provider = "cron"
match = { events = ["cron.tick"] }
handler = "run"
schedule = "* * * * *"
missed = "all"

[[triggers]]
id = "every-other"
kind = "cron"
provider = "cron"
match = {}
handler = "run"
schedule = "*/2 * * * *"
timezone = "Europe/Berlin"
missed = "all"
"""


def run(event: object) -> None:
    """Succeed."""


@pytest.mark.parametrize("seed", range(4))
def test_each_tick_is_dispatched_once_whatever_happens(seed: int) -> None:
    driver = PipelineDriver(handlers={"run": run}, chaos=Chaos.storm(seed), partitions=3)
    bindings = bindings_of(MANIFEST)
    driver.apply(bindings)
    driver.advance(10 * MINUTE_MS)
    driver.apply(bindings[:1])  # the other one drains
    began_ms = driver.clock.now_ms
    driver.advance(10 * MINUTE_MS)
    driver.apply([])
    driver.finish()
    done = driver.records("trigger.outbox", "dispatch_succeeded")
    per_trigger = Counter(seen.value["trigger_id"] for seen in done)
    ticks = Counter(seen.value["event_id"] for seen in done)
    assert set(ticks.values()) == {1}
    assert per_trigger["every-minute"] >= 20
    assert 4 <= per_trigger["every-other"] <= per_trigger["every-minute"] // 2 + 1
    events = driver.records("trigger.inbox.envelopes", "event_ingested")
    late = [seen for seen in events if seen.timestamp_ms > began_ms + MINUTE_MS]
    assert {seen.value["trigger_id"] for seen in late} == {"every-minute"}
    assert driver.records("triggers.lifecycle", "EventUnmatched", "CronTicksMissed") == []
    assert driver.audit().divergences == []
