"""Channels in the whole pipeline: what a handler emits arrives once, whatever happens."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streams.core.emission import DEPTH_MAX
from streams.handler_api import Context, Event
from streams.testing import Chaos, PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "orders"
kind = "webhook"
provider = "github"
match = {}
handler = "order"
retry = { max = 3, backoff = "immediate" }

[[triggers]]
id = "invoices"
kind = "channel.emit"
provider = "channel"
match = { events = ["channel:tenant:*:ordered"] }
handler = "invoice"
"""

EVENTS = 20


def order(found: Event, context: Context) -> str:
    context.emit("ordered", {"order": found.id})
    if context.attempt == 1:
        raise RuntimeError("not yet, so nothing was emitted")
    context.emit("unheard")
    return "ordered"


def invoice(found: Event) -> Any:
    return found.payload["payload"]["order"]


@pytest.mark.parametrize("seed", range(4))
def test_what_was_emitted_arrives_once(seed: int) -> None:
    driver = PipelineDriver(
        handlers={"order": order, "invoice": invoice}, chaos=Chaos.storm(seed), partitions=3
    )
    driver.apply(bindings_of(MANIFEST))
    for number in range(EVENTS):
        driver.emit(event(f"e{number}", tenant_id=f"t{number % 3}"))
    driver.finish()
    invoiced = Counter(
        seen.value["result"]
        for seen in driver.records("trigger.outbox", "dispatch_succeeded")
        if seen.value["trigger_id"] == "invoices"
    )
    assert invoiced == Counter(f'"e{number}"' for number in range(EVENTS))
    unmatched = driver.records("triggers.lifecycle", "EventUnmatched")
    assert len({seen.value["event_id"] for seen in unmatched}) == EVENTS
    assert {seen.value["event_kind"].rpartition(":")[2] for seen in unmatched} == {"unheard"}
    assert driver.audit().divergences == []


def test_a_trigger_that_takes_what_it_emits_comes_to_an_end() -> None:
    def again(_event: Event, context: Context) -> None:
        context.emit("loop")

    driver = PipelineDriver(handlers={"again": again})
    text = MANIFEST[MANIFEST.index('[[triggers]]\nid = "invoices"') :]
    text = text.replace("ordered", "loop").replace('"invoice"', '"again"')
    driver.apply(bindings_of(text + "retry = { max = 1 }\n"))
    driver.emit(event("first", provider="channel", kind="channel:loop"))
    driver.finish()
    succeeded = driver.records("trigger.outbox", "dispatch_succeeded")
    [dead] = driver.records("trigger.dlq", "dlq_moved")
    assert len(succeeded) == DEPTH_MAX
    assert "does a trigger feed itself" in dead.value["final_error"]
