"""`harn doctor` on a real broker: before, while and after the application runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    cli,
    emit,
    event,
    provision,
    settings_for_app,
    terminal_records,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until

MANIFEST = """
[[triggers]]
id = "refused"
kind = "webhook"
provider = "github"
match = { path = "/github" }
secrets = { signing_secret = "github/gone" }
handler = "refuse"

[[triggers]]
id = "waiting"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "later"
retry = { max = 3, backoff = "linear", delay = "2h" }
"""

HANDLERS = """
from streams.handler_api import Terminal

def refuse(event):
    raise Terminal("no")

def later(event):
    raise RuntimeError("not now")
"""


def examined(settings: Settings) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of the command."""
    done = cli(settings, "doctor", "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def whats(document: dict[str, Any], level: str) -> list[str]:
    return [each["what"] for each in document["findings"] if each["level"] == level]


def unread(document: dict[str, Any]) -> dict[str, int]:
    """Topics of which records wait; what ends transactions in them is nothing to read."""
    return {group["topic"]: group["lag"] for group in document["groups"] if group["lag"]}


@pytest.mark.broker
def test_what_needs_somebody_is_told_with_an_exit_code(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    settings = settings_for_app(private_broker.start(), tmp_path, secrets_dir=secrets)
    code, document = examined(settings)
    assert code == 1
    missing = "trigger.inbox.envelopes: is missing, or this user may not see it"
    assert missing in whats(document, "problem")
    assert document["registry"] is None

    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    arguments = ["--manifest", str(manifest)]
    roles = "registry,inbox,dispatch,invoker,relay,scheduler"
    member = Member("all", roles, settings, tmp_path, arguments)
    with Fleet([member], supervise=False) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        asyncio.run(emit(settings, [event(number) for number in range(4)]))
        wait_until("refused ones end", lambda: len(terminal_records(settings)) == 4)

        def retries() -> bool:
            return (
                sum(each["retry_queue_depth"] for each in examined(settings)[1]["dispatchers"]) == 4
            )

        wait_until("the others wait", retries)
        wait_until("all is read", lambda: unread(examined(settings)[1]) == {})
        code, document = examined(settings)
        assert code == 0, document["findings"]
        assert whats(document, "advice")[0] == "4 dead letters wait for somebody"
        assert any("webhooks at 'github'" in each for each in whats(document, "advice"))
        assert document["registry"]["states"] == {"active": 2}
        assert {group["members"] for group in document["groups"]} == {1}
        assert sum(each["dead_letters"] for each in document["dispatchers"]) == 4
        assert {each["revision"] for each in document["dispatchers"]} == {1}
        shown = cli(settings, "doctor")
        assert shown.returncode == 0
        assert "advice: 4 dead letters wait for somebody" in shown.stdout
        assert "revision 1 (broadcast 1): 2 active" in shown.stdout
        assert fleet.terminate() == {"all": 0}
    code, document = examined(settings)
    assert code == 1
    nobody = [each for each in whats(document, "problem") if each.startswith("nobody runs role")]
    expected = {"registry", "inbox", "dispatch", "invoker", "scheduler"}
    assert {each.split()[3] for each in nobody} == expected


@pytest.mark.broker
def test_a_cluster_that_does_not_answer_is_an_outage(tmp_path: Path) -> None:
    nowhere = Settings(bootstrap="127.0.0.1:1", state_dir=tmp_path)
    done = cli(nowhere, "doctor")
    assert done.returncode == 5
    assert "does not answer" in done.stderr


def test_a_broker_of_our_own_is_not_started_to_be_looked_at(tmp_path: Path) -> None:
    done = cli(Settings(state_dir=tmp_path), "doctor")
    assert done.returncode == 5
    assert "does not run" in done.stderr
    assert "harn broker start" in done.stderr
