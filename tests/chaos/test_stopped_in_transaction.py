"""A dispatch owner stands still inside a transaction: the others' work goes on within seconds."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
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

EVENTS = 1_500
RATE_PAUSE_S = 0.02
GAP_MS_MAX = 8_000

MANIFEST = """
[[triggers]]
id = "quick"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "quick"
"""

HANDLERS = """
async def quick(event):
    return event.id
"""


@pytest.mark.chaos
@pytest.mark.broker
@pytest.mark.soak
def test_handlers_fed_by_other_owners_start_again_and_no_lease_is_lost(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    flag = tmp_path / "stop-now"
    members = [
        _member("others", "registry,inbox,invoker", settings, tmp_path, manifest),
        _member("dispatch-0", "dispatch", settings, tmp_path, manifest, "--stop-flag", str(flag)),
        _member("dispatch-1", "dispatch", settings, tmp_path, manifest),
    ]
    with Fleet(members) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        load = threading.Thread(target=lambda: asyncio.run(_load(settings)))
        load.start()
        wait_until("work flows", lambda: sum(terminal_records(settings).values()) > 50)
        flag.touch()
        wait_until("it stands in a transaction", lambda: fleet["dispatch-0"].said("SELFSTOP"))
        load.join()
        wait_until("outcomes", lambda: sum(terminal_records(settings).values()) >= EVENTS, 60)
        fleet["dispatch-0"].resume()
        assert set(fleet.terminate().values()) <= {0, 5}
    kept = _partitions_kept(fleet["dispatch-1"])
    assert kept, "dispatch-1 owned partitions all along"
    assert _longest_silence_ms(settings, kept) <= GAP_MS_MAX
    assert not read(settings, "triggers.lifecycle", {"InvocationLost"})
    assert_one_outcome_each(settings, (f"trigger_evt_{number}" for number in range(EVENTS)))
    assert_audit_is_clean(settings)


def _member(
    name: str, roles: str, settings: Settings, folder: Path, manifest: Path, *extra: str
) -> Member:
    own = replace(settings, state_dir=folder / name)
    return Member(name, roles, own, folder, ["--manifest", str(manifest), *extra])


async def _load(settings: Settings) -> None:
    await emit(settings, (event(n) for n in range(EVENTS)), pause_s=RATE_PAUSE_S)


def _partitions_kept(member: Member) -> set[int]:
    """Partitions that the member had before the other one stood still."""
    taken = [
        set(map(int, line.split('partitions="[')[1].split("]")[0].split(", ")))
        for line in member.log.read_text().splitlines()
        if "partitions_taken stage=dispatch" in line and 'partitions="[' in line
    ]
    return min(taken, key=len)


def _longest_silence_ms(settings: Settings, partitions: set[int]) -> int:
    """Longest time without an outcome in any of these home partitions, by the broker's clock."""
    times: dict[int, list[int]] = defaultdict(list)
    for entry in read(settings, "trigger.dispatches", {"invocation_completed"}):
        times[entry.partition].append(entry.timestamp)
    return max(later - earlier for p in partitions for earlier, later in pairwise(sorted(times[p])))
