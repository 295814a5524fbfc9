"""Triggers registered by programs and marks, on a real broker: in force, run, drained."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from streams.app import Application, Plan
from streams.errors import ManifestError
from streams.roles import ALL_ROLES
from streams.settings import Settings
from streams.triggers import register_declared, trigger_register
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

MANIFEST = """
[[triggers]]
id = "by-manifest"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "seen"
"""
HANDLERS = """
from streams.triggers import trigger

def seen(event):
    return "manifest"

@trigger(id="marked", kind="webhook", provider="github", match={"events": ["a"]})
async def marked(event, context):
    context.emit("marked", event.id)
    return "marked"

@trigger(id="hears", kind="channel.emit", provider="channel", match={"events": ["channel:marked"]})
def hears(event):
    return event.payload["payload"]
"""


def outcomes(settings: Settings) -> set[tuple[str, str]]:
    found = read(settings, "trigger.outbox", {"dispatch_succeeded"})
    return {(entry.value["trigger_id"], json.loads(entry.value["result"])) for entry in found}


def states(settings: Settings) -> dict[str, tuple[str, str]]:
    listed = json.loads(cli(settings, "trigger", "list", "--json").stdout)
    return {each["binding_key"]: (each["state"], each["source"]) for each in listed["bindings"]}


async def test_triggers_come_and_go_one_by_one(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    path = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    application = Application(Plan(settings=settings, roles=ALL_ROLES, manifest=path))
    await application.start()
    try:
        await asyncio.to_thread(apply, settings, path)
        marked = await asyncio.to_thread(register_declared, settings, path)
        assert [(each.binding_key, each.is_new) for each in marked] == [
            ("marked@v1", True),
            ("hears@v1", True),
        ]
        again = await asyncio.to_thread(register_declared, settings, path)
        assert [each.is_new for each in again] == [False, False]
        declaration = {
            "id": "by-program",
            "kind": "webhook",
            "provider": "github",
            "match": {"events": ["a"]},
            "handler": "seen",
        }
        registered = await asyncio.to_thread(
            trigger_register, declaration, manifest=path, settings=settings
        )
        assert (registered.binding_key, registered.broadcast) == ("by-program@v1", True)
        with pytest.raises(ManifestError, match="exists already: by-program@v1 is active"):
            await asyncio.to_thread(trigger_register, declaration, manifest=path, settings=settings)

        await emit(settings, [event(1, kind="a")])
        first = {
            ("by-manifest", "manifest"),
            ("marked", "marked"),
            ("hears", "trigger_evt_1"),
            ("by-program", "manifest"),
        }
        await eventually(lambda: outcomes(settings) == first, "every trigger's outcome")

        show = ("trigger", "show", "marked", "--json", "--at")
        known = await asyncio.to_thread(cli, settings, *show, "2999-01-01T00:00:00Z")
        assert json.loads(known.stdout)["binding_key"] == "marked@v1"
        early = await asyncio.to_thread(cli, settings, *show, "2000-01-01T00:00:00Z")
        assert (early.returncode, "had no version in force at 2000" in early.stderr) == (2, True)

        # An apply leaves what is registered alone; each way out drains and ends.
        await asyncio.to_thread(apply, settings, path)
        await asyncio.to_thread(registered.deregister)
        drained = await asyncio.to_thread(cli, settings, "trigger", "drain", "by-manifest")
        assert (drained.returncode, drained.stdout) == (0, "- by-manifest@v1 (drains)\n")
        unknown = await asyncio.to_thread(cli, settings, "trigger", "drain", "nope")
        assert (unknown.returncode, "trigger 'nope' is unknown" in unknown.stderr) == (2, True)
        over = {
            "by-manifest@v1": ("terminated", "manifest"),
            "by-program@v1": ("terminated", "dynamic"),
            "hears@v1": ("active", "dynamic"),
            "marked@v1": ("active", "dynamic"),
        }
        await eventually(lambda: states(settings) == over, "the drained ones terminated")
    finally:
        await application.stop()
    await asyncio.to_thread(assert_audit_is_clean, settings)
