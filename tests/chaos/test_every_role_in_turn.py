"""Every role is restarted, and then killed, one after the other, while events keep coming."""

from __future__ import annotations

import asyncio
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    assert_audit_is_clean,
    assert_one_outcome_each,
    emit,
    event,
    provision,
    read,
    settings_for_app,
    terminal_records,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.broker,
    pytest.mark.soak,
    pytest.mark.timeout(400),
]

ROLES = ("registry", "inbox", "dispatch", "invoker")

# Slots, waiters, retries and predicates are what a restart could lose.
MANIFEST = """
[[triggers]]
id = "busy"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "on_issue"
when = "cel:event.payload.number != ''"
concurrency = { key = "event.kind", max = 40 }
retry = { max = 4, backoff = "linear", delay = "300ms" }
circuit = "off"
"""

HANDLERS = """
import asyncio

async def on_issue(event, context):
    number = int(event.payload["number"])
    await asyncio.sleep(0.02 if number % 20 else 0.5)
    if number % 25 == 0 and context.attempt == 1:
        raise ValueError("works the second time")
    return number
"""


class _Load(threading.Thread):
    """Appends events at a steady rate until it is told to stop; `count` of them in the end."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._enough = threading.Event()
        self.count = 0

    def run(self) -> None:
        asyncio.run(emit(self._settings, self._events(), pause_s=0.01))

    def _events(self) -> Iterator[dict[str, Any]]:
        for number in itertools.count():
            if self._enough.is_set():
                return
            self.count = number + 1
            yield event(number)

    def end(self) -> int:
        self._enough.set()
        self.join()
        return self.count


def _member(role: str, settings: Settings, folder: Path, manifest: Path) -> Member:
    own = replace(settings, instance_id=role, state_dir=folder / role)
    return Member(role, role, own, folder, ["--manifest", str(manifest)])


def _in_turn(fleet: Fleet, settings: Settings, end: Callable[[Member], None]) -> None:
    """End each member, and see it back at work before the next one's turn."""
    for name in ROLES:
        member = fleet[name]
        ends = len(member.exits) + 1
        end(member)
        wait_until(f"{name} has ended", lambda m=member, n=ends: len(m.exits) >= n)
        fleet.wait_up()
        done = sum(terminal_records(settings).values())
        wait_until(
            f"events are done after {name} came back",
            lambda d=done: sum(terminal_records(settings).values()) > d,
        )


def test_nothing_is_lost_or_cancelled_when_every_role_restarts_and_then_is_killed(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    with Fleet([_member(role, settings, tmp_path, manifest) for role in ROLES]) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        load = _Load(settings)
        load.start()
        try:
            _in_turn(fleet, settings, lambda member: member.signal(signal.SIGTERM))
            restarts = {member.name: list(member.exits) for member in fleet.members.values()}
            _in_turn(fleet, settings, Member.kill)
        finally:
            count = load.end()
        wait_until(f"{count} outcomes", lambda: sum(terminal_records(settings).values()) >= count)
        codes = fleet.terminate()
    assert restarts == {role: [0] for role in ROLES}, "a restart is orderly"
    assert set(codes.values()) == {0}, codes
    assert_one_outcome_each(settings, (f"trigger_evt_{number}" for number in range(count)))
    assert read(settings, "trigger.dlq") == [], "nothing ends undelivered"
    assert read(settings, "trigger.outbox", {"dispatch_cancelled", "dispatch_skipped"}) == []
    assert_audit_is_clean(settings)
