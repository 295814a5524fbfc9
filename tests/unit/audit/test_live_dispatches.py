"""What a dispatch that has not ended waits for, in words."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from streams.audit.explain import explain
from streams.audit.live_dispatches import standing_of, tell_standings
from streams.cli.trigger_explain import as_json, print_story
from streams.codec import Codec
from streams.core.circuit import FAILURES_MAX
from streams.testing import PipelineDriver, event
from tests.support.circuit_words import partition_of
from tests.support.dispatch_log import completed, matched, running
from tests.support.gate_log import GateLog
from tests.support.stage_log import StageLog
from tests.support.triggers import bindings_of
from topology import TOPOLOGY

MANIFEST = """
[[triggers]]
id = "one"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "works"
throttle = { period = "1h", max = 1 }

[[triggers]]
id = "two"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "works"
"""


def standing(log: StageLog, name: str) -> str:
    row: Any = log.rows[f"d:{name}"]
    return standing_of(row)


def test_a_live_dispatch_is_told_with_what_it_waits_for_and_one_that_ended_is_not() -> None:
    driver = PipelineDriver(handlers={"works": lambda found: found.payload})
    driver.apply(bindings_of(MANIFEST))
    for name in ("e1", "e2"):
        driver.emit(event(name))
    driver.advance(1_000)
    story = explain(driver.kafka, Codec(), "e2")
    tell_standings(driver.kafka, Codec(), TOPOLOGY.stage("dispatch"), story)
    told = {each.binding_key: each.standing for each in story.dispatches.values()}
    assert told["two@v1"] is None
    assert str(told["one@v1"]).startswith("it waits at gate throttle until 20")
    out = StringIO()
    print_story(Console(file=out, width=200), story)
    assert "now it waits at gate throttle until" in out.getvalue()
    shown = {each["binding_key"]: each["standing"] for each in as_json(story)["dispatches"]}
    assert shown == told


def test_what_an_invoker_has_is_told_with_what_it_has_been_through() -> None:
    log = partition_of(0, 1)
    log.add("event_matched", matched("d"))
    assert standing(log, "d") == "attempt 1 is before the invokers"
    log.add("invocations_running", running("d", invoker_id="i7"))
    assert standing(log, "d").startswith("attempt 1 runs on i7, leased until ")
    log.now_ms = log.rows["d:d"]["due_ms"]
    log.add("tick", {"due_ms": log.now_ms})
    assert standing(log, "d").endswith("the invokers; 1 invokers were lost while they ran it")
    log.add("invocation_completed", completed("unresolved", "d", fence=2))
    assert "attempt 1 is issued again at 2" in standing(log, "d")
    assert "given back 1 times" in standing(log, "d")


@pytest.mark.parametrize(
    ("flow", "words"),
    [
        ({"when": "is_big"}, "its predicate is before the invokers"),
        ({"concurrency": {"max": 1}}, "it waits at gate concurrency"),
        ({"debounce": {"period_ms": 5_000}}, "it waits at gate debounce until "),
    ],
)
def test_what_stands_before_its_first_attempt_is_told(flow: dict[str, Any], words: str) -> None:
    log = GateLog(flow)
    log.arrive("first", 0)
    log.arrive("d", 0)
    assert standing(log, "d").startswith(words)


def test_a_retry_and_a_cancel_are_told() -> None:
    log = GateLog({}, backoff="svix", max_attempts=7)
    log.arrive("d", 0)
    log.end("d", 0, "failed")
    assert standing(log, "d").startswith("attempt 2 is due at 20")
    log.pass_time(5)
    log.cancel("d", 6)
    assert standing(log, "d").startswith("attempt 2 is before the invokers; cancelled: ada asked")


def test_who_is_parked_is_told_why() -> None:
    log = partition_of(0, 1)
    for number in range(FAILURES_MAX):
        log.add("event_matched", matched(f"f{number}"))
        log.add("invocation_completed", completed("failed", f"f{number}"))
    log.add("event_matched", matched("d"))
    assert standing(log, "d").startswith("it is parked, as its destination fails, until 20")
