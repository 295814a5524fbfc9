"""A schedule on a real cluster: two members, one firing a tick, whoever of them goes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from streams.app import Application, Plan
from streams.roles import ALL_ROLES
from streams.settings import Settings
from tests.support.app_cluster import (
    Entry,
    apply,
    assert_audit_is_clean,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.eventually import eventually

# A schedule ticks once a minute at most: this waits for several.
pytestmark = [pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(300)]

TRIGGERS = 6
MANIFEST = "".join(
    f"""
[[triggers]]
id = "minutely-{number}"
kind = "cron"
provider = "cron"
match = {{}}
handler = "run"
schedule = "* * * * *"
missed = "all"
"""
    for number in range(TRIGGERS)
)
HANDLERS = """
def run(event):
    return event.payload["tick_at"]
"""


def outcomes(settings: Settings) -> list[Entry]:
    return read(settings, "trigger.outbox", {"dispatch_succeeded"})


async def test_each_tick_fires_once_also_while_a_member_leaves(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    path = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    first = Application(Plan(settings=settings, roles=ALL_ROLES, manifest=path))
    other = replace(settings, state_dir=tmp_path / "second")
    second = Application(Plan(settings=other, roles=ALL_ROLES, manifest=path))
    leaving = second
    try:
        await first.start()
        await asyncio.to_thread(apply, settings, path)
        await second.start()
        everyone = TRIGGERS
        await eventually(
            lambda: len(outcomes(settings)) >= everyone, "a tick of each", within_s=100
        )
        await second.stop()
        leaving = first
        await eventually(
            lambda: len(outcomes(settings)) >= 2 * everyone, "another one", within_s=100
        )
    finally:
        await first.stop()
        if leaving is second:
            await second.stop()
    found = outcomes(settings)
    fired = Counter((entry.value["trigger_id"], entry.value["result"]) for entry in found)
    assert set(fired.values()) == {1}
    ticks = {tick for _, tick in fired}
    assert set(fired) == {(f"minutely-{n}", tick) for n in range(TRIGGERS) for tick in ticks}
    assert read(settings, "triggers.lifecycle", {"CronTicksMissed", "EventUnmatched"}) == []
    await asyncio.to_thread(assert_audit_is_clean, settings)
