"""Members that come and go under load, and a broker that is killed and comes back."""

from __future__ import annotations

import asyncio
import signal
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
    settings_for_app,
    terminal_records,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.broker, pytest.mark.timeout(300)]

ALL = "registry,inbox,dispatch,invoker"

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


class Load:
    """Events appended at a steady rate from a thread; waits for their outcomes."""

    def __init__(self, settings: Settings, count: int, pause_s: float) -> None:
        self._settings = settings
        self.count = count
        events = (event(number) for number in range(count))
        self._thread = threading.Thread(
            target=lambda: asyncio.run(emit(settings, events, pause_s=pause_s))
        )

    def start(self) -> None:
        self._thread.start()

    def outcomes(self) -> int:
        return sum(terminal_records(self._settings).values())

    def reached(self, share: float) -> None:
        wanted = int(self.count * share)
        wait_until(f"{wanted} outcomes", lambda: self.outcomes() >= wanted)

    def finish(self) -> None:
        self._thread.join()
        self.reached(1.0)
        assert_one_outcome_each(self._settings, (f"trigger_evt_{n}" for n in range(self.count)))


def _member(name: str, settings: Settings, folder: Path, manifest: Path) -> Member:
    own = replace(settings, state_dir=folder / name, instance_id=name)
    return Member(name, ALL, own, folder, ["--manifest", str(manifest)])


def test_members_join_and_leave_under_load(private_broker: PrivateBroker, tmp_path: Path) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    first, second, third = (_member(f"m{n}", settings, tmp_path, manifest) for n in range(3))
    with Fleet([first], supervise=False) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        load = Load(settings, 3_000, 0.004)
        load.start()
        load.reached(0.1)
        for joining in (second, third):
            fleet.members[joining.name] = joining
            joining.start().wait_ready()
        load.reached(0.5)
        assert first.terminate() == 0
        load.reached(0.7)
        assert second.terminate() == 0
        load.finish()
        assert third.terminate() == 0
    assert_audit_is_clean(settings)


@pytest.mark.soak
def test_a_broker_is_killed_and_comes_back_under_load(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    members = [_member(f"m{n}", settings, tmp_path, manifest) for n in range(2)]
    with Fleet(members) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        load = Load(settings, 3_000, 0.004)
        load.start()
        for share in (0.2, 0.5):
            load.reached(share)
            private_broker.kill()
            again = private_broker.start()
            assert again.bootstrap == settings.bootstrap, "it comes back where it was"
        load.finish()
        # A commit that hung may end a member only now; one that only starts ends by the signal.
        assert set(fleet.terminate().values()) <= {0, -signal.SIGTERM}
    assert_audit_is_clean(settings)
