"""A producer's jobs, from its trigger to a consumer's handler, by the commands that people type.

The walk-through of the pages on worker queues: two manifests that share a cluster, `ls`, `drain`
and `purge`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streams.app import Application, Plan
from streams.roles import ALL_ROLES
from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    assert_audit_is_clean,
    cli,
    emit,
    event,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.eventually import eventually

pytestmark = [pytest.mark.broker]

PRODUCER = """
[[triggers]]
id = "incoming-review-task"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "worker://triage"
priority = "high"
"""

CONSUMER = """
[exports]
handlers = "lib.py"

[[triggers]]
id = "incoming-review-task"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::on_task"
"""

HANDLERS = """
def on_task(event):
    if event.payload["number"] == "3":
        raise ValueError("never works")
    return {"seen": event.id}
"""


def queue(settings: Settings, consumer: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`harn orchestrator queue`, as an operator types it."""
    command = [sys.executable, "-m", "streams.cli.main", "orchestrator", "queue"]
    command += ["--config", str(consumer), "--state-dir", str(settings.state_dir), *arguments]
    environment = {**os.environ, **settings.environment()}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def standing(settings: Settings, consumer: Path) -> dict[str, Any]:
    [found] = answer(queue(settings, consumer, "ls", "--json"))["worker_queues"]
    return {name: found[name] for name in ("queue", "ready", "in_flight", "acked", "responses")}


def repeats(settings: Settings, consumer: Path) -> dict[str, Any]:
    found = answer(queue(settings, consumer, "ls", "--json"))["dispatcher"]
    names = ("duplicates_rejected", "fast_path_hits", "durable_hits")
    names += ("expired_entries", "active_entries")
    return {f"inbox_{name}": found[f"inbox_{name}"] for name in names}


def in_words(**depths: int) -> dict[str, Any]:
    return {"queue": "triage", "ready": 0, "in_flight": 0, "acked": 0, "responses": 0, **depths}


async def count_repeats(settings: Settings, consumer: Path) -> None:
    """Three of the five events are delivered again, and `ls` knows of it."""
    await emit(settings, [event(number) for number in range(3)])
    await eventually(
        lambda: len(read(settings, "triggers.lifecycle", {"EventDeduplicated"})) == 3, "repeats"
    )
    assert await asyncio.to_thread(repeats, settings, consumer) == {
        "inbox_duplicates_rejected": 3,
        "inbox_fast_path_hits": 3,
        "inbox_durable_hits": 0,
        "inbox_expired_entries": 0,
        "inbox_active_entries": 5,
    }


async def test_a_producer_and_a_consumer_share_a_queue(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    producer = write_manifest(tmp_path / "producer", PRODUCER, "")
    consumer = write_manifest(tmp_path / "consumer", CONSUMER, "")
    (tmp_path / "consumer" / "lib.py").write_text(HANDLERS)
    application = Application(Plan(settings=settings, roles=ALL_ROLES, manifest=producer))
    await application.start()
    try:
        await asyncio.to_thread(apply, settings, producer)
        await emit(settings, [event(number) for number in range(5)])
        await eventually(
            lambda: len(read(settings, "trigger.outbox", {"dispatch_succeeded"})) == 5, "receipts"
        )
        # `ls` waits for what was written before it was called: nobody waits for the relay here.
        found = await asyncio.to_thread(standing, settings, consumer)
        assert found == in_words(ready=5)  # vectors 5-01 and 5-08

        await count_repeats(settings, consumer)

        refused = await asyncio.to_thread(queue, settings, consumer, "purge", "triage")
        assert (refused.returncode, "--confirm" in refused.stderr) == (2, True)  # vector 5-17
        assert await asyncio.to_thread(standing, settings, consumer) == in_words(ready=5)

        # What failed comes again when its claim ends: not while this test looks.
        drain = ("drain", "triage", "--consumer-id", "worker-a", "--claim-ttl", "1h", "--json")
        drained = answer(await asyncio.to_thread(queue, settings, consumer, *drain))
        counts = {name: drained[name] for name in ("consumer_id", "drained", "acked", "deferred")}
        assert counts == {"consumer_id": "worker-a", "drained": 5, "acked": 4, "deferred": 1}
        by_status: dict[str, list[Any]] = {}
        for each in drained["responses"]:
            by_status.setdefault(each["outcome"]["status"], []).append(each)
        assert {status: len(found) for status, found in by_status.items()} == {
            "succeeded": 4,
            "failed": 1,
        }
        assert by_status["failed"][0]["error"] == "ValueError: never works"
        story = answer(
            await asyncio.to_thread(cli, settings, "trigger", "explain", "trigger_evt_3", "--json")
        )
        [job] = story["dispatches"][0]["jobs"]
        assert (job["queue"], job["outcome"]) == ("triage", "claimed")
        told = [each["kind"] for each in job["happenings"]]
        assert told == ["trigger_dispatch", "job_claimed", "job_response"]
        left = in_words(in_flight=1, acked=4, responses=5)
        assert await asyncio.to_thread(standing, settings, consumer) == left

        await emit(settings, [event(number) for number in range(5, 8)])
        await eventually(
            lambda: len(read(settings, "trigger.outbox", {"dispatch_succeeded"})) == 8, "receipts"
        )
        purge = ("purge", "triage", "--confirm", "--json")
        purged = answer(await asyncio.to_thread(queue, settings, consumer, *purge))
        assert (purged["purged"], purged["summary"]["in_flight"]) == (3, 1)
        metrics = await asyncio.to_thread(cli, settings, "orchestrator", "metrics")
        assert 'fairness_key="_no_tenant",queue="triage"} 5.0' in metrics.stdout
        empty = answer(
            await asyncio.to_thread(queue, settings, consumer, "drain", "nobody", "--json")
        )
        assert (empty["drained"], empty["summary"]["ready"]) == (0, 0)
    finally:
        await application.stop()
    invariants = await asyncio.to_thread(cli, settings, "audit", "invariants")
    assert invariants.returncode == 0, invariants.stdout + invariants.stderr
    await asyncio.to_thread(assert_audit_is_clean, settings)
