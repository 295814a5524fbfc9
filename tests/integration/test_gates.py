"""Gates on a real cluster: limits hold while owners are killed, and the auditor recomputes them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    assert_audit_is_clean,
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

KEYS = 3
EVENTS = 120

MANIFEST = """
[[triggers]]
id = "limited"
kind = "webhook"
provider = "github"
match = { events = ["limited"] }
handler = "quick"
rate_limit = { key = "event.tenant_id", period = "1h", max = 10 }

[[triggers]]
id = "two-at-a-time"
kind = "webhook"
provider = "github"
match = { events = ["slow"] }
handler = "slow"
concurrency = { key = "event.tenant_id", max = 2 }

[[triggers]]
id = "kept-out"
kind = "webhook"
provider = "github"
match = { events = ["limited"] }
handler = "quick"
filter = "event.payload.number == 'nothing'"
"""

HANDLERS = """
import asyncio

async def quick(event):
    return event.id

async def slow(event):
    await asyncio.sleep(0.05)
    return event.id
"""


@pytest.mark.broker
def test_limits_hold_while_the_owner_is_killed(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    members = [
        _member("others", "registry,inbox,invoker", settings, tmp_path, manifest),
        _member("dispatch", "dispatch", settings, tmp_path, manifest),
    ]
    with Fleet(members) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        for first, last in ((0, EVENTS // 2), (EVENTS // 2, EVENTS)):
            asyncio.run(emit(settings, [_event(number) for number in range(first, last)]))
            _wait_for_outcomes(settings, first // 4)
            fleet["dispatch"].kill()
        slow = {f"trigger_evt_{number}" for number in range(1, EVENTS, 2)}
        wait_until("slow ones end", lambda: slow <= set(terminal_records(settings)))
        limited = EVENTS // 2
        wait_until("each has its word", lambda: len(_allowed(settings)) >= limited)
        wait_until("the filter has kept out all", lambda: _filtered(settings) >= limited)
        assert set(fleet.terminate().values()) == {0}
    decided = _allowed(settings)
    allowed = Counter(gate for gate, kind in decided.values() if kind == "rate_limit_allowed")
    assert allowed == dict.fromkeys((f"limited@v1:tenant-{key}" for key in range(KEYS)), 10)
    skipped = read(settings, "trigger.outbox", {"dispatch_skipped"})
    assert len(skipped) == limited - 10 * KEYS
    assert _most_at_once(settings) == 2
    assert _filtered(settings) == limited
    assert_audit_is_clean(settings)


def _wait_for_outcomes(settings: Settings, count: int) -> None:
    wait_until("some end", lambda: len(terminal_records(settings)) > count)


def _event(number: int) -> dict[str, object]:
    kind = "slow" if number % 2 else "limited"
    return event(number, kind=kind, tenant_id=f"tenant-{number // 2 % KEYS}")


def _member(name: str, roles: str, settings: Settings, folder: Path, manifest: Path) -> Member:
    own = replace(settings, state_dir=folder / name, instance_id=name)
    return Member(name, roles, own, folder, ["--manifest", str(manifest)])


def _allowed(settings: Settings) -> dict[str, tuple[str, str]]:
    """The rate limit's word about each event: gate and kind."""
    entries = read(settings, "trigger.rate_limit.limited")
    return {entry.value["event_id"]: (entry.value["gate"], entry.kind) for entry in entries}


def _filtered(settings: Settings) -> int:
    return len(read(settings, "triggers.lifecycle", {"EventFiltered"}))


def _most_at_once(settings: Settings) -> int:
    """The most slots of one key that were held at any position of the gate's log."""
    held: dict[str, int] = defaultdict(int)
    most = 0
    for entry in read(settings, "trigger.concurrency.two-at-a-time"):
        gate = entry.value["gate"]
        held[gate] += 1 if entry.kind == "concurrency_acquired" else -1
        most = max(most, held[gate])
    assert not any(held.values()), f"slots leaked: {dict(held)}"
    return most
