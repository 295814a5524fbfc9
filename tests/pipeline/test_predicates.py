"""Predicates that are functions, in the whole pipeline, under storms."""

from __future__ import annotations

from collections import Counter

import pytest

from streams.testing import Chaos, PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "big"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "work"
when = "is_big"
concurrency = { key = "event.tenant_id", max = 2 }

[[triggers]]
id = "broken"
kind = "webhook"
provider = "github"
match = { events = ["b"] }
handler = "work"
when = "breaks"
"""

EVENTS = 40


def is_big(found: object) -> bool:
    return found.payload["n"] >= 20  # type: ignore[attr-defined]


def breaks(_found: object) -> bool:
    raise LookupError("no such thing")


@pytest.mark.parametrize("seed", range(8))
def test_only_those_that_it_lets_on_are_handled_each_once(seed: int) -> None:
    chaos = Chaos(seed=seed, crash_per_mille=40, zombie_per_mille=20, lose_invoker_per_mille=10)
    handlers = {"work": lambda found: found.payload["n"], "is_big": is_big, "breaks": breaks}
    driver = PipelineDriver(handlers=handlers, partitions=3, chaos=chaos)
    driver.apply(bindings_of(MANIFEST))
    for number in range(EVENTS):
        kind = "ab"[number % 2]
        tenant = f"tenant-{number % 3}"
        driver.emit(event(f"e{number}", kind=kind, payload={"n": number}, tenant_id=tenant))
    driver.finish()
    done = driver.records("trigger.outbox", "dispatch_succeeded")
    assert sorted(int(each.value["result"]) for each in done) == list(range(20, EVENTS, 2))
    skipped = driver.records("trigger.outbox", "dispatch_skipped")
    by_trigger = Counter(each.value["trigger_id"] for each in skipped)
    assert by_trigger == {"big": 10, "broken": 20}
    driver.emit(event("late", kind="b", payload={"n": 0}))
    driver.finish()
    reasons = {
        each.value["event_id"]: each.value["reason"]
        for each in driver.records("triggers.lifecycle", "predicate.evaluated")
        if each.value["trigger_id"] == "broken"
    }
    assert set(reasons.values()) == {"failed: LookupError: no such thing", "circuit_open"}
    assert reasons["late"] == "circuit_open", "whichever partition it comes to"
    assert not driver.records("trigger.dlq")
    assert driver.audit().word == "verified"
