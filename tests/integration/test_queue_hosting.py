"""Queues with a state directory alone: the command runs relay and scheduler while it works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streams.edge.broker import ensure_broker, stop_broker
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.app_cluster import read, write_manifest
from tests.support.fleet import wait_until
from tests.support.worker_edge import body_of

pytestmark = [pytest.mark.broker]

CONSUMER = """
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
def quick(event):
    return event.id
"""


PATIENT = """
async def quick(event, context):
    return await context.cancelled
"""


def environment() -> dict[str, str]:
    """The environment of a command that knows of no cluster."""
    named = ("KAFKA_", "HARN_", "SCHEMA_REGISTRY_")
    others = {name: text for name, text in os.environ.items() if not name.startswith(named)}
    kept = {name: os.environ[name] for name in ("HARN_CACHE_DIR",) if name in os.environ}
    return others | kept


def harn(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that knows of no cluster."""
    return subprocess.run(
        [sys.executable, "-m", "streams.cli.main", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_command_hosts_what_nobody_runs(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    consumer = write_manifest(tmp_path / "consumer", CONSUMER, "")
    (tmp_path / "consumer" / "lib.py").write_text(HANDLERS)
    alone = Settings(state_dir=state_dir)
    settings = alone.with_bootstrap(ensure_broker(alone).bootstrap)
    try:
        place = ("--config", str(consumer), "--state-dir", str(state_dir))
        queue = ("orchestrator", "queue", *place)
        # On an empty broker: topics are made by whatever comes first.
        metrics = harn("orchestrator", "metrics", "--state-dir", str(state_dir))
        assert metrics.returncode == 0, metrics.stderr
        assert "# TYPE harn_scheduler_selections_total counter" in metrics.stdout
        assert "{" not in metrics.stdout, "there is no queue"
        assert answer(harn("queue", "list", "--json", "--state-dir", str(state_dir))) == []
        # Without a queue no relay is missed.
        empty = harn(*queue, "ls", "--json")
        assert answer(empty)["worker_queues"] == []
        assert "nobody runs scheduler here" in empty.stderr
        done = harn(*queue, "purge", "nobody", "--confirm", "--json")
        assert (answer(done)["purged"], answer(done)["summary"]["ready"]) == (0, 0)
        assert "there is no queue nobody yet" in done.stderr
        done = harn(*queue, "drain", "nobody", "--json")
        assert (answer(done)["drained"], answer(done)["summary"]["ready"]) == (0, 0)
        assert "there is no queue nobody yet" in done.stderr
        done = harn("queue", "create", "triage", "--state-dir", str(state_dir))
        assert done.returncode == 0, done.stderr
        producer = make_producer(settings)
        for number in range(3):
            producer.produce("worker.triage", body_of("quick", number), "triage")
        assert producer.flush(30) == 0

        drained = answer(harn(*queue, "drain", "triage", "--json"))
        assert {name: drained[name] for name in ("drained", "acked", "deferred")} == {
            "drained": 3,
            "acked": 3,
            "deferred": 0,
        }
        listed = harn(*queue, "ls", "--json")
        assert "nobody runs relay and scheduler here" in listed.stderr
        [found] = answer(listed)["worker_queues"]
        assert (found["ready"], found["acked"]) == (0, 3)
    finally:
        stop_broker(state_dir)


@pytest.mark.timeout(180)
def test_a_drain_that_is_asked_to_end_tells_its_handlers_and_ends(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    consumer = write_manifest(tmp_path / "consumer", CONSUMER, "")
    (tmp_path / "consumer" / "lib.py").write_text(PATIENT)
    alone = Settings(state_dir=state_dir)
    settings = alone.with_bootstrap(ensure_broker(alone).bootstrap)
    queue = ("orchestrator", "queue", "--config", str(consumer), "--state-dir", str(state_dir))
    try:
        made = harn("queue", "create", "triage", "--state-dir", str(state_dir))
        assert made.returncode == 0, made.stderr
        producer = make_producer(settings)
        for number in range(3):
            producer.produce("worker.triage", body_of("quick", number), "triage")
        assert producer.flush(30) == 0
        for times, asked in enumerate((signal.SIGTERM, signal.SIGINT), start=1):
            drain = subprocess.Popen(
                [sys.executable, "-m", "streams.cli.main", *queue, "drain", "triage"],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            wait_until("a job is claimed", lambda least=times: claims(settings) >= least)
            drain.send_signal(asked)
            told, _ = drain.communicate(timeout=60)
            assert drain.returncode == 130, told
            assert "Traceback" not in told
            [found] = answer(harn(*queue, "ls", "--json"))["worker_queues"]
            assert (found["acked"], found["ready"], found["in_flight"]) == (times, 3 - times, 0)
    finally:
        stop_broker(state_dir)


def claims(settings: Settings) -> int:
    return len(read(settings, "worker.triage.claims", {"job_claimed"}))
