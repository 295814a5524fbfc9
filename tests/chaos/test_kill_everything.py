"""20,000 events while members are killed, kill themselves in transactions, and one stands still."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace
from pathlib import Path

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

EVENTS = 20_000
KILLS = 10
SELF_KILLS = 8
STOPPED_S = 20.0

MANIFEST = """
[[triggers]]
id = "all"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "on_issue"
retry = { max = 3, backoff = "immediate" }
"""

# One event in fifty fails once, one in five hundred always.
HANDLERS = """
async def on_issue(event, context):
    number = int(event.payload["number"])
    if number % 500 == 0:
        raise ValueError("never works")
    if number % 50 == 0 and context.attempt == 1:
        raise ValueError("works the second time")
    return number
"""


def members(settings: Settings, folder: Path, manifest: Path) -> list[Member]:
    made: list[Member] = []
    for slot in (0, 1):
        for roles, self_kill in (("registry,inbox", 0.004), ("dispatch", 0.002), ("invoker", 0.0)):
            name = f"{roles.split(',')[-1]}-{slot}"
            own = replace(settings, instance_id=name, state_dir=folder / name)
            arguments = ["--manifest", str(manifest), "--kill", str(self_kill), "--seed", str(slot)]
            made.append(Member(name, roles, own, folder, arguments))
    return made


@pytest.mark.chaos
@pytest.mark.broker
@pytest.mark.timeout(600)
def test_each_event_has_one_outcome_whatever_is_killed(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    dice = random.Random(11)
    with Fleet(members(settings, tmp_path, manifest)) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        load = threading.Thread(target=lambda: asyncio.run(_load(settings)))
        load.start()
        kills = _kill_at_random(fleet, dice)
        stopped = fleet["dispatch-0"]
        stopped.stop_the_clock()
        threading.Event().wait(STOPPED_S)  # the fault itself: a process that stands still so long
        stopped.resume()
        load.join()
        wait_until(
            f"{EVENTS} terminal records",
            lambda: sum(terminal_records(settings).values()) >= EVENTS,
            240,
        )
        self_kills = sum(member.said("SELFKILL") for member in fleet.members.values())
        codes = fleet.terminate()
    assert kills >= KILLS
    assert self_kills >= SELF_KILLS, f"only {self_kills} members killed themselves in a transaction"
    assert set(codes.values()) == {0}, codes
    _check_outcomes(settings)
    assert_audit_is_clean(settings)


async def _load(settings: Settings) -> None:
    await emit(settings, (event(number) for number in range(EVENTS)), pause_s=0.002)


def _kill_at_random(fleet: Fleet, dice: random.Random) -> int:
    kills = 0
    while kills < KILLS:
        threading.Event().wait(dice.uniform(1.5, 4.0))
        victim = fleet[dice.choice(sorted(fleet.members))]
        if victim.running:
            victim.kill()
            kills += 1
    return kills


def _check_outcomes(settings: Settings) -> None:
    assert_one_outcome_each(settings, (f"trigger_evt_{number}" for number in range(EVENTS)))
    dead = {entry.value["event"]["id"] for entry in read(settings, "trigger.dlq", {"dlq_moved"})}
    assert dead == {f"trigger_evt_{number}" for number in range(0, EVENTS, 500)}
