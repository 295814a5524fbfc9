"""`dedupe_key` in the whole pipeline: deliveries that differ in all but the value run once."""

from __future__ import annotations

import pytest

from streams.testing import Chaos, PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "order"
kind = "webhook"
provider = "github"
match = { events = ["paid"] }
handler = "ship"
dedupe_key = "event.payload.order"
"""

ORDERS = 12


@pytest.mark.parametrize("seed", range(6))
def test_deliveries_in_several_partitions_with_one_value_are_dispatched_once(seed: int) -> None:
    chaos = Chaos(seed=seed, crash_per_mille=40, zombie_per_mille=20, duplicate_per_mille=50)
    driver = PipelineDriver(
        handlers={"ship": lambda found: found.payload["order"]}, partitions=4, chaos=chaos
    )
    driver.apply(bindings_of(MANIFEST))
    for number in range(3 * ORDERS):
        delivery, order = f"delivery-{number}", {"order": number % ORDERS}
        driver.emit(event(f"e{number}", kind="paid", payload=order, dedupe_key=delivery))
    driver.finish()
    ingested = driver.records("trigger.inbox.envelopes", "event_ingested")
    assert len({each.position.partition for each in ingested}) > 1
    done = driver.records("trigger.outbox", "dispatch_succeeded")
    assert sorted(int(each.value["result"]) for each in done) == list(range(ORDERS))
    skipped = driver.records("trigger.outbox", "dispatch_skipped")
    assert {each.value["skip_stage"] for each in skipped} == {"dedupe"}
    assert len({each.value["dispatch_id"] for each in skipped}) == 2 * ORDERS
    claims = driver.records("trigger.inbox.claims", "dedupe_claim")
    assert len({each.key for each in claims}) == ORDERS
    assert driver.audit().word == "verified"


def test_a_replay_of_a_duplicate_is_dispatched() -> None:
    driver = PipelineDriver(handlers={"ship": lambda found: found.payload["order"]})
    driver.apply(bindings_of(MANIFEST))
    for name in ("e1", "e2"):
        driver.emit(event(name, kind="paid", payload={"order": 1}))
    driver.emit(
        event("e3", kind="paid", payload={"order": 1}),
        trigger_id="order",
        replay_of_event_id="e2",
    )
    driver.finish()
    ran = {each.context.event_id for each in driver.runs}
    assert "e3" in ran
    assert len(ran) == 2, "of the others one"
