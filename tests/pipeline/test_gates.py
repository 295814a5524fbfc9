"""Gates in the whole pipeline, under storms: limits hold, nothing is stranded, the audit agrees."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

from streams.testing import Chaos, PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "one-at-a-time"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "work"
concurrency = { key = "event.tenant_id", max = 1 }
retry = { max = 3, backoff = "svix" }

[[triggers]]
id = "slowly"
kind = "webhook"
provider = "github"
match = { events = ["b"] }
handler = "work"
throttle = { key = "event.tenant_id", period = "10s", max = 2 }

[[triggers]]
id = "together"
kind = "webhook"
provider = "github"
match = { events = ["c"] }
handler = "work"
batch = { key = "event.tenant_id", size = 3, timeout = "1m" }

[[triggers]]
id = "big-only"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "work"
when = "cel:event.payload.n >= 20"
filter = "event.tenant_id == 'acme'"
"""

EVENTS = 36
PERIOD_MS = 10_000


def work(found: object, context: object) -> int | list[int]:
    if context.attempt == 1 and found.payload["n"] % 7 == 0:  # type: ignore[attr-defined]
        message = "not yet"
        raise RuntimeError(message)
    if found.batch is not None:  # type: ignore[attr-defined]
        return [each.payload["n"] for each in found.batch]  # type: ignore[attr-defined]
    return found.payload["n"]  # type: ignore[attr-defined]


def storm(seed: int) -> PipelineDriver:
    chaos = Chaos(seed=seed, crash_per_mille=40, zombie_per_mille=20, lose_invoker_per_mille=10)
    driver = PipelineDriver(handlers={"work": work}, chaos=chaos, duration_ms=300)
    driver.apply(bindings_of(MANIFEST))
    for number in range(EVENTS):
        tenant = ("acme", "globex")[number // 3 % 2]
        found = event(f"e{number}", kind="abc"[number % 3], payload={"n": number}, tenant_id=tenant)
        driver.emit(found)
        driver.advance(seed % 3 * 500)
    driver.finish()
    return driver


@pytest.mark.parametrize("seed", range(12))
def test_every_dispatch_ends_once_and_the_audit_agrees(seed: int) -> None:
    driver = storm(seed)
    matched = {
        seen.value["dispatch_id"] for seen in driver.records("trigger.dispatches", "event_matched")
    }
    ended = Counter(
        seen.value["dispatch_id"]
        for topic, kinds in (
            ("trigger.outbox", ("dispatch_succeeded", "dispatch_skipped")),
            ("trigger.dlq", ("dlq_moved",)),
        )
        for seen in driver.records(topic, *kinds)
    )
    assert ended == Counter(dict.fromkeys(matched, 1))
    assert driver.audit().word == "verified"
    assert not [row for row in driver.rows("dispatch") if "status" in row]


@pytest.mark.parametrize("seed", range(12))
def test_limits_hold_at_every_position_of_the_log(seed: int) -> None:
    driver = storm(seed)
    held: dict[str, int] = defaultdict(int)
    for seen in driver.records("trigger.concurrency.one-at-a-time"):
        held[seen.value["gate"]] += 1 if seen.kind == "concurrency_acquired" else -1
        assert 0 <= held[seen.value["gate"]] <= 1
    assert not any(held.values())
    starts: dict[str, list[int]] = defaultdict(list)
    cause_times = times_of_causes(driver)
    for seen in driver.records("trigger.throttle.slowly", "throttle_acquired"):
        starts[seen.value["gate"]].append(cause_times[seen.headers["cause"].rpartition("/")[0]])
    for times in starts.values():
        for first, third in zip(times, times[2:], strict=False):
            assert third - first >= PERIOD_MS


def times_of_causes(driver: PipelineDriver) -> dict[str, int]:
    """Stream time of each record of the dispatch mailbox: the clock that gates go by."""
    now: dict[int, int] = defaultdict(int)
    times: dict[str, int] = {}
    for seen in driver.records("trigger.dispatches"):
        partition = seen.position.partition
        now[partition] = max(now[partition], seen.timestamp_ms)
        times[str(seen.position)] = now[partition]
    return times


def test_a_batch_carries_every_member_once() -> None:
    driver = storm(3)
    members: list[str] = []
    for seen in driver.records("trigger.invocations", "invoke"):
        batch = seen.value["event"]["batch"]
        if batch is not None and seen.value["fence"] == 1:
            assert 1 <= len(batch) <= 3
            members += [text.split('"id":"')[1].split('"')[0] for text in batch]
    assert Counter(members) == Counter(f"e{number}" for number in range(2, EVENTS, 3))
    results = [
        json.loads(seen.value["result"])
        for seen in driver.records("trigger.outbox", "dispatch_succeeded")
        if seen.value["trigger_id"] == "together"
    ]
    handled = [number for numbers in results for number in numbers]
    assert sorted(handled) == list(range(2, EVENTS, 3)), "a handler is given every member"


def test_filter_and_predicate_decide_who_goes_on() -> None:
    driver = storm(0)
    filtered = {
        seen.value["event_id"] for seen in driver.records("triggers.lifecycle", "EventFiltered")
    }
    assert filtered == {f"e{n}" for n in range(0, EVENTS, 3) if n // 3 % 2 == 1}
    verdicts = {
        seen.value["event_id"]: seen.value["result"]
        for seen in driver.records("triggers.lifecycle", "predicate.evaluated")
    }
    assert verdicts == {f"e{n}": n >= 20 for n in range(0, EVENTS, 3) if n // 3 % 2 == 0}
