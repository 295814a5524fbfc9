"""Real GitHub deliveries, signed, over HTTP, through the whole application on a real broker."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from streams.edge.broker.ports import pick_ports
from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    assert_audit_is_clean,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.webhooks import signed

DELIVERIES = Path(__file__).parents[1] / "data" / "github-webhooks.jsonl.gz"
SECRET = b"development-only"

MANIFEST = """
[[triggers]]
id = "everything"
kind = "webhook"
provider = "github"
match = { path = "/github" }
secrets = { signing_secret = "github/hook" }
handler = "digest"

[[triggers]]
id = "issues"
kind = "webhook"
provider = "github"
match = { path = "/github", events = ["issues.opened", "issues.closed"] }
secrets = { signing_secret = "github/hook" }
handler = "digest"

[[triggers]]
id = "elsewhere"
kind = "webhook"
provider = "github"
match = { path = "/elsewhere" }
secrets = { signing_secret = "github/other" }
handler = "digest"

[[triggers]]
id = "no-webhooks"
kind = "webhook"
provider = "github"
match = {}
handler = "digest"
"""

HANDLERS = """
import json
from hashlib import sha256

def digest(event):
    text = json.dumps(event.payload, sort_keys=True)
    return [event.kind, event.signature_state, sha256(text.encode()).hexdigest()]
"""


class Delivery(NamedTuple):
    """One delivery as GitHub sends it, and the result that its handler must give."""

    id: str
    event: str
    body: bytes
    result: list[str]

    @property
    def headers(self) -> dict[str, str]:
        headers = {**signed("github", self.body, SECRET, delivery=self.id)}
        return {**headers, "X-GitHub-Event": self.event, "Content-Type": "application/json"}


def deliveries() -> list[Delivery]:
    found: list[Delivery] = []
    with gzip.open(DELIVERIES) as lines:
        for number, line in enumerate(lines):
            sent = json.loads(line)
            event, payload = sent["event"], sent["payload"]
            action = payload.get("action")
            kind = event if action is None else f"{event}.{action}"
            digest = sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()
            body = json.dumps(payload, indent=1).encode()
            found.append(Delivery(f"guid-{number}", event, body, [kind, "verified", digest]))
    return found


async def send(url: str, sent: Sequence[Delivery]) -> list[httpx.Response]:
    """Deliver all of it, twenty at once."""
    slots = asyncio.Semaphore(20)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def post(delivery: Delivery) -> httpx.Response:
            async with slots:
                return await client.post(
                    "/webhooks/github", content=delivery.body, headers=delivery.headers
                )

        return await asyncio.gather(*(post(delivery) for delivery in sent))


def results(settings: Settings) -> dict[str, Counter[str]]:
    """The results of every dispatch, by trigger."""
    found: dict[str, Counter[str]] = {}
    for entry in read(settings, "trigger.outbox", {"dispatch_succeeded"}):
        result = json.dumps(json.loads(entry.value["result"]))
        found.setdefault(entry.value["trigger_id"], Counter())[result] += 1
    return found


@pytest.mark.broker
@pytest.mark.timeout(300)
def test_every_delivery_that_github_repeats_is_dispatched_once(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "github.hook").write_bytes(SECRET)
    (secrets / "github.other").write_bytes(b"another")
    settings = settings_for_app(private_broker.start(), tmp_path, secrets_dir=secrets)
    [metrics_port] = pick_ports(tmp_path, 1)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    member = Member(
        "all",
        "ingest,registry,inbox,dispatch,invoker",
        replace(settings, metrics_port=metrics_port),
        tmp_path,
        ["--manifest", str(manifest)],
    )
    sent = deliveries()
    assert len(sent) == 165
    with Fleet([member], supervise=False) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        url = member.http_url
        wait_until("paths are served", lambda: _unsigned(url) == 401)
        answers = asyncio.run(send(url, [*sent, *sent]))
        assert {answer.status_code for answer in answers} == {202}
        forged = httpx.post(
            f"{url}/webhooks/github", content=b"{}", headers=sent[0].headers, timeout=60
        )
        assert forged.status_code == 401
        wait_until("all end", lambda: results(settings).get("everything", Counter()).total())
        expected = _expected(sent)
        wait_until("each ends", lambda: results(settings) == expected)
        duplicates = read(settings, "triggers.lifecycle", {"EventDeduplicated"})
        assert len(duplicates) == len(sent)
        _assert_counted(metrics_port, len(answers))
        assert fleet.terminate() == {"all": 0}
    assert results(settings) == _expected(sent)
    assert_audit_is_clean(settings)


def _unsigned(url: str) -> int:
    return httpx.post(f"{url}/webhooks/github", json={}, timeout=60).status_code


def _expected(sent: Sequence[Delivery]) -> dict[str, Counter[str]]:
    every = Counter(json.dumps(delivery.result) for delivery in sent)
    issues = {f"issues.{action}" for action in ("opened", "closed")}
    some = Counter(json.dumps(each.result) for each in sent if each.result[0] in issues)
    return {"everything": every, "issues": some}


def _assert_counted(port: int, answered: int) -> None:
    """Metrics of the process tell what it answered."""
    page: Any = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    taken = re.search(r'^harn_ingest_events_total\{status="202"\} (\S+)$', page, re.MULTILINE)
    assert taken is not None
    assert float(taken[1]) == answered
