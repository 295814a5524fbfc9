"""Jobs of a queue while workers and schedulers are killed and stand still: each is done once."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

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

JOBS = 3_000
TTL_S = 3

MANIFEST = """
[exports]
handlers = "lib.py"

[[triggers]]
id = "quick"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::quick"
"""

HANDLERS = """
import asyncio


async def quick(event):
    await asyncio.sleep(0.01)
    return event.id
"""


def members(settings: Settings, folder: Path, manifest: Path) -> Iterator[Member]:
    for number in (0, 1):
        yield scheduler(settings, folder, number)
    options = ["--config", str(manifest), "--concurrency", "8", "--claim-ttl", f"{TTL_S}s"]
    for name in ("worker-a", "worker-b"):
        own = replace(settings, state_dir=folder / name)
        yield WorkerProcess(
            name, "", own, folder, arguments=("triage", "--consumer-id", name, *options)
        )


def scheduler(settings: Settings, folder: Path, number: int) -> Member:
    name = f"scheduler-{number}"
    own = replace(settings, instance_id=name, state_dir=folder / name)
    return Member(name, "registry,relay,scheduler", own, folder)


@pytest.mark.chaos
@pytest.mark.broker
@pytest.mark.timeout(300)
def test_each_job_is_done_once_whoever_is_killed_or_stands_still(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings, manifest = _queue(private_broker, tmp_path)
    with Fleet(members(settings, tmp_path, manifest)) as fleet:
        fleet.wait_ready()
        load = threading.Thread(target=_produce, args=(settings,))
        load.start()
        _wait_for(settings, JOBS // 6)
        fleet["worker-a"].kill()
        _wait_for(settings, JOBS // 3)
        fleet["worker-b"].stop_the_clock()
        threading.Event().wait(2 * TTL_S)  # the fault itself: beyond the time of its claims
        fleet["worker-b"].resume()
        fleet["scheduler-0"].kill()
        _wait_for(settings, 2 * JOBS // 3)
        fleet["scheduler-1"].kill()
        load.join()
        _wait_for(settings, JOBS)
        codes = fleet.terminate()
    assert set(codes.values()) == {0}, codes
    assert _acked(settings) == Counter(str(number) for number in range(JOBS))
    verdict = cli(settings, "audit", "invariants")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert_audit_is_clean(settings)


@pytest.mark.soak
@pytest.mark.chaos
@pytest.mark.broker
@pytest.mark.timeout(400)
def test_shards_move_among_schedulers_and_outlive_the_broker(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings, manifest = _queue(private_broker, tmp_path, "--shards", "4")
    third = scheduler(settings, tmp_path, 2)
    with Fleet(members(settings, tmp_path, manifest)) as fleet:
        fleet.wait_ready()
        load = threading.Thread(target=_produce, args=(settings,))
        load.start()
        _wait_for(settings, JOBS // 6)
        third.start().wait_ready()  # scale out
        _wait_for(settings, JOBS // 3)
        private_broker.kill()
        assert private_broker.start().bootstrap == settings.bootstrap, "it is back where it was"
        _wait_for(settings, JOBS // 2)
        if third.running:  # a member that a lost broker has ended is nobody's to start again here
            third.terminate()  # scale in
        _wait_for(settings, 2 * JOBS // 3)
        fleet["scheduler-0"].kill()
        load.join()
        _wait_for(settings, JOBS)
        # A commit that hung may end a member only now; one that only starts ends by the signal.
        assert set(fleet.terminate().values()) <= {0, -signal.SIGTERM}
    acked = _acked(settings)
    assert len(acked) == JOBS
    assert set(acked.values()) == {1}
    verdict = cli(settings, "audit", "invariants")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert_audit_is_clean(settings)


def _queue(broker: PrivateBroker, folder: Path, *options: str) -> tuple[Settings, Path]:
    settings = settings_for_app(broker.start(), folder, scheduler_strategy="drr")
    provision(settings)
    manifest = write_manifest(folder / "consumer", MANIFEST, "")
    (manifest.parent / "lib.py").write_text(HANDLERS)
    created = cli(settings, "queue", "create", "triage", *options)
    assert created.returncode == 0, created.stderr
    return settings, manifest


def _produce(settings: Settings) -> None:
    producer = make_producer(settings)
    for number in range(JOBS):
        body = body_of("quick", number, tenant_id=f"tenant-{number % 8}")
        producer.produce("worker.triage", body, "triage", headers=[("kind", b"trigger_dispatch")])
        if number % 100 == 0:
            producer.flush(30)
            threading.Event().wait(0.1)  # the load itself: spread over the faults
    assert producer.flush(30) == 0


def _acked(settings: Settings) -> Counter[str]:
    found = read(settings, "worker.triage.claims", {"job_acked"})
    return Counter(entry.value["job_event_id"] for entry in found)


def _wait_for(settings: Settings, jobs: int) -> None:
    wait_until(f"{jobs} jobs are done", lambda: len(_acked(settings)) >= jobs)
