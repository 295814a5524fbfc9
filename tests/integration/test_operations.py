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
retry = { max = 7, backoff = "svix" }
"""
HANDLERS = """
def fails(event):
    raise RuntimeError("not yet")
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
