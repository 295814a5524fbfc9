"""A fold that raises stops its own partition only; an operator gets it going; audit agrees."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from streams.core.record import Position
from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    assert_audit_is_clean,
    assert_one_outcome_each,
    cli,
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

EVENTS = 60

MANIFEST = """
[[triggers]]
id = "quick"
kind = "webhook"
provider = "github"
handler = "quick"
match = { events = [] }
"""

HANDLERS = """
async def quick(event):
    return event.id
"""


@pytest.mark.chaos
@pytest.mark.broker
def test_a_raising_fold_stops_one_partition_and_a_skip_gets_it_going(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    others = _member("others", "registry,inbox,invoker", settings, tmp_path, manifest)
    dispatch = _member("dispatch", "dispatch", settings, tmp_path, manifest, "--raise-on", "poison")
    good = [f"trigger_evt_{number}" for number in range(EVENTS)]
    with Fleet([others, dispatch], supervise=False) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        _emit(settings, range(EVENTS // 2))
        _emit(settings, ["poison_1"])
        halted = _halted(dispatch, 1)
        _emit(settings, range(EVENTS // 2, EVENTS))
        free = _events_elsewhere(settings, halted, good)
        assert 0 < len(free) < EVENTS, "the events lie in several partitions"
        wait_until("the others end", lambda: free <= set(terminal_records(settings)))

        _doctor_names(settings, halted)
        refused = cli(settings, "stage", "skip", str(halted._replace(offset=halted.offset + 1)))
        assert refused.returncode == 2
        assert str(halted) in refused.stderr, "the refusal says where the stage stands"
        skipped = cli(settings, "stage", "skip", str(halted), "--reason", "poison")
        assert skipped.returncode == 0, skipped.stderr
        wait_until("all end", lambda: set(good) <= set(terminal_records(settings)))

        # A second one is mended by new code instead: the process restarts with a fold that works.
        _emit(settings, ["poison_2"])
        _halted(dispatch, 2)
        assert dispatch.terminate() == 0
        dispatch.arguments = dispatch.arguments[:2]
        dispatch.start()
        wait_until(
            "the mended fold passes",
            lambda: "trigger_evt_poison_2" in terminal_records(settings),
        )
        assert set(fleet.terminate().values()) == {0}
    assert_one_outcome_each(settings, [*good, "trigger_evt_poison_2"])
    quarantined = read(settings, "trigger.dlq", {"record_quarantined"})
    places = [(e.value["topic"], e.value["partition"], e.value["offset"]) for e in quarantined]
    assert places == [tuple(halted)]
    assert [entry.value["code"] for entry in quarantined] == ["skipped"]
    assert_audit_is_clean(settings)


def _doctor_names(settings: Settings, halted: Position) -> None:
    examined = cli(settings, "doctor")
    assert examined.returncode == 1
    said = " ".join(examined.stdout.split())
    assert f"stage dispatch is halted before {halted}: RuntimeError" in said
    assert f"harn stage skip {halted}" in said


def _member(
    name: str, roles: str, settings: Settings, folder: Path, manifest: Path, *extra: str
) -> Member:
    own = replace(settings, state_dir=folder / name)
    return Member(name, roles, own, folder, ["--manifest", str(manifest), *extra])


def _emit(settings: Settings, numbers: range | list[str]) -> None:
    asyncio.run(emit(settings, [event(number) for number in numbers]))


def _halted(member: Member, times: int) -> Position:
    """The position that the member's log names, once it has halted so many times."""
    wait_until("a partition halts", lambda: member.said("stage_partition_halted") >= times)
    found = re.findall(r"stage_partition_halted .*?position=(\S+)", member.log.read_text())
    return Position.parse(found[-1])


def _events_elsewhere(settings: Settings, halted: Position, events: list[str]) -> set[str]:
    """Events whose dispatch lies in another partition, once all are matched."""

    def matched() -> dict[str, int]:
        entries = read(settings, "trigger.dispatches", {"event_matched"})
        homes = {entry.value["event"]["id"]: entry.partition for entry in entries}
        return homes if set(events) <= set(homes) else {}

    homes = wait_until("all are matched", matched)
    return {found for found in events if homes[found] != halted.partition}
