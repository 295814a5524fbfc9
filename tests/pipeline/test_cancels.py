"""Cancelling in the whole pipeline, under storms: what was asked to end ends, and once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from streams.testing import Chaos, PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "plain"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "never"
retry = { max = 4, backoff = "svix" }

[[triggers]]
id = "one-at-a-time"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "never"
concurrency = { max = 1 }
retry = { max = 2, backoff = "immediate" }

[[triggers]]
id = "together"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "works"
batch = { size = 4, timeout = "1m" }
"""

EVENTS = 24
REQUESTS = "trigger.cancel.requests"
TERMINAL = ("dispatch_succeeded", "dispatch_skipped", "dispatch_cancelled", "dlq_moved")


def never(_event: object) -> None:
    message = "never"
    raise RuntimeError(message)


def works(_event: object) -> int:
    return 1


def ask(driver: PipelineDriver, binding_key: str, event_id: str) -> None:
    request = {
        "binding_key": binding_key,
        "event_id": event_id,
        "requested_at": "2026-01-01T00:00:00.000Z",
        "requested_by": "ada",
        "audit_id": None,
    }
    driver.append(REQUESTS, "dispatch_cancel_requested", request, key=binding_key + event_id)


def ends(driver: PipelineDriver) -> dict[tuple[str, str], list[str]]:
    """How each (binding, event) ended."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for seen in driver.history("trigger.outbox", "trigger.dlq", kinds=TERMINAL):
        value: Mapping[str, Any] = seen.value
        event_id = value["event"]["id"] if "event" in value else value["event_id"]
        found[value["binding_key"], event_id].append(seen.kind)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_each_dispatch_ends_once_whenever_it_is_cancelled(seed: int) -> None:
    chaos = Chaos(seed=seed, crash_per_mille=40, zombie_per_mille=20, lose_invoker_per_mille=10)
    driver = PipelineDriver(
        handlers={"never": never, "works": works},
        chaos=chaos,
        partitions=3,
        duration_ms=lambda context: 700 * (context.attempt % 3),
    )
    driver.apply(bindings_of(MANIFEST))
    for number in range(EVENTS):
        if number % 4 == 1:  # before it comes
            ask(driver, "plain@v1", f"e{number}")
        driver.emit(event(f"e{number}", kind="a"))
        for _ in range(20):
            driver.step()
        if number % 3 == 0:
            for key in ("plain@v1", "one-at-a-time@v1", "together@v1"):
                ask(driver, key, f"e{number}")
        driver.advance(500)
    driver.finish()
    found = ends(driver)
    assert len(found) == 3 * EVENTS
    assert all(len(kinds) == 1 for kinds in found.values()), found
    for number in range(EVENTS):
        if number % 4 == 1 or number % 3 == 0:  # svix is never through within half a second
            assert found["plain@v1", f"e{number}"] == ["dispatch_cancelled"]
        else:
            assert found["plain@v1", f"e{number}"] == ["dlq_moved"]
    live = [key for rows in driver.rows("dispatch") for key in rows if key[:2] in {"d:", "e:"}]
    assert live == []
    assert driver.audit().word == "verified"


def test_a_handler_that_runs_is_stopped_when_its_dispatch_is_cancelled() -> None:
    driver = PipelineDriver(handlers={"never": never, "works": works}, duration_ms=60_000)
    driver.apply(bindings_of(MANIFEST))
    driver.emit(event("e1", kind="a"))
    driver.advance(1_000)
    ask(driver, "plain@v1", "e1")
    driver.advance(1)
    assert ends(driver)["plain@v1", "e1"] == ["dispatch_cancelled"]
    [attempt] = [
        seen.value
        for seen in driver.records("trigger.attempts", "attempt_recorded")
        if seen.value["binding_key"] == "plain@v1"
    ]
    assert attempt["outcome"] == "cancelled"
    driver.finish()
    assert driver.audit().word == "verified"
