"""What operators ask for, on a real broker: cancel, dead letters, replay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streams.app import Application, Plan
from streams.roles import Role
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

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

ROLES = (Role.REGISTRY, Role.INBOX, Role.DISPATCH, Role.INVOKER)
MANIFEST = """
[[triggers]]
id = "later"
kind = "webhook"
provider = "github"
match = { events = ["later"] }
handler = "fails"
retry = { max = 7, backoff = "linear", delay = "2h" }

[[triggers]]
id = "fragile"
kind = "webhook"
provider = "github"
match = { events = ["fragile"] }
handler = "fragile"
retry = { max = 1, backoff = "immediate" }
"""
HANDLERS = """
from pathlib import Path


def fails(event):
    raise RuntimeError("not yet")


def fragile(event):
    if not Path(__file__).with_name("repaired").exists():
        raise RuntimeError("broken")
    return event.payload
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("operations")
    broker = PrivateBroker(folder / "broker")
    try:
        settings = settings_for_app(broker.start(), folder)
        provision(settings)
        yield settings
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_manifest(tmp_path_factory.mktemp("manifest"), MANIFEST, HANDLERS)


@asynccontextmanager
async def running(settings: Settings, manifest: Path) -> AsyncIterator[Application]:
    application = Application(Plan(settings=settings, roles=ROLES, manifest=manifest))
    await application.start()
    try:
        await asyncio.to_thread(apply, settings, manifest)
        yield application
    finally:
        await application.stop()


async def harn(settings: Settings, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run a command with `--json`; return its report."""
    done = await asyncio.to_thread(cli, settings, *arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of(settings: Settings, topic: str, kind: str) -> dict[str, dict[str, Any]]:
    """Records of one kind, by event id."""
    return {
        entry.value.get("event_id") or entry.value["event"]["id"]: entry.value
        for entry in read(settings, topic, {kind})
    }


async def test_cancelling_ends_what_waits_by_event_and_by_condition(
    settings: Settings, manifest: Path
) -> None:
    async with running(settings, manifest):
        await emit(settings, [event(number, kind="later") for number in range(6)])
        waiting = {f"trigger_evt_{number}" for number in range(6)}
        await eventually(
            lambda: set(of(settings, "triggers.lifecycle", "RetryScheduled")) == waiting,
            "every event waits for its second attempt",
        )
        tried = await harn(settings, "trigger", "cancel", "trigger_evt_0", "--dry-run")
        assert [item["status"] for item in tried["items"]] == ["dry_run"]
        one = await harn(settings, "trigger", "cancel", "trigger_evt_0")
        assert (one["matched_count"], one["requested_count"]) == (1, 1)
        where = "event.payload.number != '5' && dispatch.status == 'waiting'"
        some = await harn(settings, "trigger", "cancel", "--where", where, "--rate-limit", "50/s")
        assert {item["event_id"] for item in some["items"]} >= waiting - {
            "trigger_evt_0",
            "trigger_evt_5",
        }
        await eventually(
            lambda: (
                set(of(settings, "trigger.outbox", "dispatch_cancelled"))
                == waiting - {"trigger_evt_5"}
            ),
            "all but one are cancelled",
        )
        again = await harn(settings, "trigger", "cancel", "trigger_evt_0")
        assert [item["status"] for item in again["items"]] == ["not_cancellable"]
        audits = read(settings, "trigger.operations.audit", {"trigger_operation_audit"})
        assert [entry.value["dry_run"] for entry in audits].count(True) == 1
        ended = of(settings, "trigger.outbox", "dispatch_cancelled")["trigger_evt_0"]
        assert one["audit_id"] in ended["error"]
    assert_audit_is_clean(settings)


async def test_dead_letters_are_listed_replayed_and_discarded_and_events_replayed(
    settings: Settings, manifest: Path
) -> None:
    async with running(settings, manifest):
        await emit(settings, [event(f"f{number}", kind="fragile") for number in range(3)])
        await eventually(
            lambda: len(of(settings, "trigger.dlq", "dlq_moved")) == 3, "three dead letters"
        )
        listed = await harn(settings, "trigger", "dlq", "list")
        assert (listed["dispatcher_dlq_depth"], listed["pending_entries"]) == (3, 3)
        ids = {entry["event_id"]: entry["entry_id"] for entry in listed["entries"]}
        shown = await harn(settings, "trigger", "dlq", "show", ids["trigger_evt_f0"])
        assert shown["event"]["payload"] == {"number": "f0"}
        assert [attempt["outcome"] for attempt in shown["attempts"]] == ["failed"]

        again = await harn(settings, "trigger", "dlq", "replay", ids["trigger_evt_f0"])
        failed = again["items"][0]["replay_event_id"]
        await eventually(
            lambda: failed in of(settings, "trigger.dlq", "dlq_moved"), "it fails again"
        )
        manifest.with_name("repaired").touch()
        where = "event.payload.number != 'f2'"
        dry = await harn(settings, "trigger", "dlq", "replay", "--where", where, "--dry-run")
        assert {item["status"] for item in dry["items"]} == {"dry_run"}
        done = await harn(
            settings, "trigger", "dlq", "replay", "--where", where, "--rate-limit", "100/s"
        )
        assert (done["matched_count"], done["requested_count"]) == (2, 2)
        await eventually(
            lambda: (
                [
                    entry.value["status"] for entry in read(settings, "trigger.dlq", {"dlq_entry"})
                ].count("replay_succeeded")
                == 2
            ),
            "two are resolved",
        )
        left = await harn(settings, "trigger", "dlq", "discard", "--all")
        assert [item["event_id"] for item in left["items"]] == ["trigger_evt_f2"]

        async def empty() -> bool:
            found = await harn(settings, "trigger", "dlq", "list")
            return not found["entries"]

        while not await empty():
            pass

        sent = await harn(settings, "trigger", "replay", "trigger_evt_f1")
        fresh = sent["items"][0]["replay_event_id"]
        await eventually(
            lambda: fresh in of(settings, "trigger.outbox", "dispatch_succeeded"), "it is replayed"
        )
        ended = of(settings, "trigger.outbox", "dispatch_succeeded")[fresh]
        assert ended["replay_of_event_id"] == "trigger_evt_f1"
        bulk = await harn(
            settings,
            *("trigger", "replay", "--from", "2026-01-01", "--to", "2100-01-01"),
            *("--where", "event.kind == 'fragile' && event.payload.number == 'f1'", "--dry-run"),
        )
        assert sorted(item["status"] for item in bulk["items"]) == [
            "dry_run",
            "is_a_replay",
            "is_a_replay",
        ]
        await harn(settings, "trigger", "replay", "trigger_evt_unknown", code=1)
    assert_audit_is_clean(settings)
