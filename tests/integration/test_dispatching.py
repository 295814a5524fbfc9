"""Predicates, dedupe keys, circuits and worker queues on a real cluster, and their audit."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    assert_audit_is_clean,
    emit,
    event,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until

ORDERS = 10
REPEATS = 4

MANIFEST = """
[[triggers]]
id = "ship"
kind = "webhook"
provider = "github"
match = { events = ["order"] }
handler = "ship"
dedupe_key = "event.payload.order"

[[triggers]]
id = "urgent"
kind = "webhook"
provider = "github"
match = { events = ["issue"] }
handler = "worker://triage"
when = "is_urgent"
budget = { daily_cost_usd = 1 }
priority = "high"

[[triggers]]
id = "down"
kind = "webhook"
provider = "github"
match = { events = ["call"] }
handler = "call"
retry = { max = 100, backoff = "immediate" }
"""

HANDLERS = """
async def ship(event):
    return event.payload["order"]

async def is_urgent(event, context) -> bool:
    context.usage(cost_usd=0.001, tokens=10)
    return int(event.payload["number"]) % 2 == 0

async def call(event):
    raise ConnectionError("down")
"""


@pytest.mark.broker
def test_repeats_predicates_queues_and_circuits(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    own = replace(settings, state_dir=tmp_path / "all", instance_id="all")
    roles = "registry,inbox,dispatch,invoker"
    member = Member("all", roles, own, tmp_path, ["--manifest", str(manifest)])
    with Fleet([member]) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        orders = [
            event(number, kind="order", provider_payload=json.dumps({"order": number % ORDERS}))
            for number in range(ORDERS * REPEATS)
        ]
        issues = [event(1_000 + number, kind="issue") for number in range(20)]
        calls = [event(2_000 + number, kind="call") for number in range(40)]
        asyncio.run(emit(settings, [*orders, *issues, *calls]))
        repeats = ORDERS * (REPEATS - 1)
        wait_until("repeats end", lambda: _skipped(settings, "dedupe") == repeats)
        wait_until("jobs come", lambda: len(read(settings, "worker.triage")) == 10)
        wait_until("calls park", lambda: len(_parked(settings)) == len(calls))
        assert set(fleet.terminate().values()) == {0}
    shipped = [
        entry.value["result"]
        for entry in read(settings, "trigger.outbox", {"dispatch_succeeded"})
        if entry.value["trigger_id"] == "ship"
    ]
    assert sorted(map(int, shipped)) == list(range(ORDERS))
    assert len(read(settings, "trigger.inbox.claims")) == ORDERS
    jobs = read(settings, "worker.triage", {"trigger_dispatch"})
    numbers = [json.loads(job.value["event"]["provider_payload"])["number"] for job in jobs]
    assert {int(number) % 2 for number in numbers} == {0}
    assert {job.headers["priority"] for job in jobs} == {"high"}
    attempts = read(settings, "trigger.attempts", {"attempt_recorded"})
    failed = [entry for entry in attempts if entry.value["outcome"] == "failed"]
    assert len(failed) < 4 * len(calls), "held back, and not tried a hundred times each"
    assert_audit_is_clean(settings)


def _skipped(settings: Settings, stage: str) -> int:
    found = read(settings, "trigger.outbox", {"dispatch_skipped"})
    return len([entry for entry in found if entry.value["skip_stage"] == stage])


def _parked(settings: Settings) -> set[str]:
    found = read(settings, "triggers.lifecycle", {"DispatchParked"})
    return {entry.value["dispatch_id"] for entry in found}
