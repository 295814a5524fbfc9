"""What the chart installs works: each pod's own command and environment, on a real Kafka."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from streams.codec import Codec
from streams.edge.broker.ports import pick_ports
from streams.edge.registry_view import read_registry
from streams.edge.topic_reader import TopicReader
from streams.roles import Role
from streams.settings import Settings
from tests.support.broker import PrivateBroker
from tests.support.eventually import PATIENCE_S
from tests.support.fleet import wait_until
from tests.support.rendered_chart import Rendered, ci_values, container, environment

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
WAIT_S = PATIENCE_S


class Pods:
    """Runs pods as processes of this machine; only ports and folders are other than the chart's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        wanted = [(role, name) for role in Role for name in ("http", "metrics")]
        # Below those that systems give to connections: a pod binds its ports much later.
        self.ports = dict(zip(wanted, pick_ports(folder, len(wanted)), strict=True))

    def command(self, pod: dict[str, Any]) -> list[str]:
        args = [
            each.replace("/etc/harn/manifest", str(self._folder)) for each in container(pod)["args"]
        ]
        return [sys.executable, "-m", "streams.cli.main", *args]

    def environment(self, pod: dict[str, Any], name: str) -> dict[str, str]:
        given = environment(pod)
        if name in set(Role):
            given["HARN_METRICS_PORT"] = str(self.ports[Role(name), "metrics"])
            given["HARN_HTTP_PORT"] = str(self.ports[Role(name), "http"])
        given["HARN_STATE_DIR"] = str(self._folder / name)
        kept = {each: os.environ[each] for each in ("PATH", "HOME") if each in os.environ}
        return {**kept, **given, "PYTHONPATH": str(ROOT)}

    def to_the_end(self, pod: dict[str, Any], name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(pod),
            env=self.environment(pod, name),
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )

    @contextmanager
    def running(self, pod: dict[str, Any], role: Role) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / f"{role}.log").open("wb") as log:
            process = subprocess.Popen(
                self.command(pod), env=self.environment(pod, role), stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def answers(self, pod: dict[str, Any], role: Role, probe: str) -> bool:
        """Whether a probe of the pod succeeds now."""
        asked = container(pod)[probe]["httpGet"]
        url = f"http://127.0.0.1:{self.ports[role, asked['port']]}{asked['path']}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


def values(bootstrap: str) -> dict[str, Any]:
    return {
        "kafka": {"bootstrapServers": bootstrap},
        "topics": {"partitions": 3, "replicationFactor": 1, "minInsyncReplicas": 1},
        "manifest": {"path": "", "files": ci_values("full")["manifest"]["files"]},
    }


def post(url: str, event: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url, json.dumps(event).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def outcomes(settings: Settings) -> dict[str, str]:
    """Return the results by event id."""
    codec, found = Codec(), dict[str, str]()
    with TopicReader(settings, "trigger.outbox") as reader:
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        deadline = time.monotonic() + 5
        while not reader.at_end and time.monotonic() < deadline:
            for record in reader.read(0.2):
                if record.kind == "dispatch_succeeded":
                    _, value = codec.decode(record.value or b"")
                    found[value["event_id"]] = value["result"]
    return found


def test_topics_roles_an_event_and_the_audit_as_installed(
    render: Callable[..., Rendered], private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = private_broker.start()
    rendered = render("minimal", values(kafka.bootstrap))
    pods = Pods(tmp_path)
    (manifest,) = rendered.of_kind("ConfigMap")
    for name, text in manifest["data"].items():
        (tmp_path / name).write_text(text, "utf-8")
    jobs = {name.removeprefix("rel-harn-streams-"): pod for name, pod in rendered.pods()}

    made = pods.to_the_end(jobs["provision"], "provision")
    assert made.returncode == 0, made.stderr
    with ExitStack() as stack:
        running = {role: stack.enter_context(pods.running(jobs[role], role)) for role in Role}
        for role in Role:
            wait_until(
                f"{role} is ready",
                lambda role=role: pods.answers(jobs[role], role, "readinessProbe"),
                WAIT_S,
            )
            assert pods.answers(jobs[role], role, "livenessProbe")
        settings = Settings.from_env(pods.environment(jobs["inbox"], "reader").get)
        wait_until(
            "the manifest is in force",
            lambda: read_registry(settings, Codec()).broadcast >= 1,
            WAIT_S,
        )
        answered = post(
            f"http://127.0.0.1:{pods.ports[Role.INGEST, 'http']}/v1/events",
            {"provider": "github", "kind": "issues.opened", "payload": {"issue": {"number": 7}}},
        )
        wait_until("it succeeded", lambda: answered["event_id"] in outcomes(settings), WAIT_S)
        assert json.loads(outcomes(settings)[answered["event_id"]]) == {"issue": 7}

        audited = pods.to_the_end(jobs["audit"], "audit")
        assert audited.returncode == 0, audited.stdout + audited.stderr
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        codes = {role: process.wait(WAIT_S) for role, process in running.items()}
    assert codes == dict.fromkeys(Role, 0)
