"""Gates of a consumer manifest on a real broker: two workers, one of which is killed, one limit."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.app_cluster import (
    assert_audit_is_clean,
    cli,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.granted import WorkerProcess
from tests.support.worker_edge import body_of

pytestmark = [pytest.mark.broker]

JOBS = 10
TTL_S = 8  # a worker that stands still for less loses nothing
CLAIMS, RESPONSES = "worker.triage.claims", "worker.triage.responses"

MANIFEST = """
[exports]
handlers = "lib.py"

[[triggers]]
id = "careful"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::careful"
when = "cel:event.payload.wanted == true"
throttle = { max = 2, period = "1s" }
concurrency = { max = 1, key = "event.payload.repo" }

[[triggers]]
id = "rare"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::careful"
rate_limit = { max = 1, period = "1h" }
"""

HANDLERS = """
import asyncio
import pathlib

RAN = pathlib.Path(__file__).with_name("ran.txt")


async def careful(event, context):
    with RAN.open("a") as file:
        file.write(f"{event.id} begins\\n")
    await asyncio.sleep(event.payload["seconds"] if context.attempt == 1 else 0)
    with RAN.open("a") as file:
        file.write(f"{event.id} ends\\n")
"""


def test_limits_hold_for_all_workers_though_one_is_killed(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "consumer", MANIFEST, HANDLERS)
    app = Member("app", "registry,relay,scheduler", settings, tmp_path)
    workers = [worker(settings, tmp_path, manifest, name) for name in ("worker-a", "worker-b")]
    ran = tmp_path / "consumer" / "ran.txt"
    with Fleet([app, *workers], supervise=False):
        for member in (app, *workers):
            member.wait_ready()
        enqueue(settings, "careful", 0, seconds=3_600)
        wait_until("the first one runs", ran.exists)
        holder = admitted(settings)[0]["consumer_id"]
        for number in range(1, JOBS):
            enqueue(settings, "careful", number, seconds=0.1)
        enqueue(settings, "careful", JOBS, wanted=False)
        enqueue(settings, "rare", JOBS + 1, seconds=0)
        enqueue(settings, "rare", JOBS + 2, seconds=0)
        wait_until("all but the waiting ones are done", lambda: len(acked(settings)) == 3)
        assert ran.read_text().count("begins") == 2, "one has the slot, and one is of another gate"

        killed = next(each for each in workers if each.name == holder)
        left = next(each for each in workers if each.name != holder)
        killed.kill()
        # Its slot comes free with its claim, at a time to live after its last renewal.
        wait_until("the others are done", lambda: len(acked(settings)) == JOBS + 3)
        assert left.terminate() == 0, left.tail()
        assert app.terminate() == 0, app.tail()
    assert Counter(outcome for _, outcome in responses(settings)) == {
        "succeeded": JOBS + 1,  # one of the rare ones among them
        "skipped": 2,
    }
    (limited,) = [each for each in acked(settings) if each["skipped_by"]]
    assert limited["skipped_by"] == "rate_limit"
    assert one_at_a_time(ran.read_text().splitlines())
    assert throttled(admitted(settings))
    verdict = cli(settings, "audit", "invariants")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert_audit_is_clean(settings)


def worker(settings: Settings, folder: Path, manifest: Path, name: str) -> WorkerProcess:
    options = ["--config", str(manifest), "--concurrency", "4", "--claim-ttl", f"{TTL_S}s"]
    own = replace(settings, state_dir=folder / name)
    return WorkerProcess(
        name, "", own, folder, arguments=("triage", "--consumer-id", name, *options)
    )


def enqueue(
    settings: Settings, trigger_id: str, number: int, *, wanted: bool = True, seconds: float = 0.0
) -> None:
    payload = {"wanted": wanted, "repo": "r", "seconds": seconds}
    producer = make_producer(settings)
    producer.produce(
        "worker.triage",
        body_of(trigger_id, number, payload),
        "triage",
        headers=[("kind", b"trigger_dispatch")],
    )
    assert producer.flush(30) == 0


def of_kind(settings: Settings, kind: str) -> list[dict[str, Any]]:
    return [entry.value for entry in read(settings, CLAIMS, {kind})]


def acked(settings: Settings) -> list[dict[str, Any]]:
    return of_kind(settings, "job_acked")


def admitted(settings: Settings) -> list[dict[str, Any]]:
    return of_kind(settings, "job_admitted")


def responses(settings: Settings) -> list[tuple[str, str]]:
    found = read(settings, RESPONSES)
    return [(entry.value["claim_id"], entry.value["outcome"]) for entry in found]


def one_at_a_time(lines: list[str]) -> bool:
    """Whether no job began before the one before it had ended; the killed one did not."""
    of_the_gate = [
        each for each in lines if each not in (f"e{JOBS + 1} begins", f"e{JOBS + 1} ends")
    ]
    assert of_the_gate[0] == "e0 begins"
    begun, ended = of_the_gate[1::2], of_the_gate[2::2]
    return [each.split()[0] for each in begun] == [each.split()[0] for each in ended]


def throttled(words: list[dict[str, Any]]) -> bool:
    """Whether no three jobs passed within a second."""
    passes = sorted(
        {
            (passed["at_ms"], each["job_event_id"])
            for each in words
            for passed in each["passed"]
            if passed["gate"] == "throttle"
        }
    )
    assert len(passes) == JOBS
    triples = zip(passes, itertools.islice(passes, 2, None), strict=False)
    return all(third[0] - first[0] >= 1_000 for first, third in triples)
