"""Invokers that are restarted, killed and slow under load: nothing is lost, and no lease leaks."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterable
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

pytestmark = [pytest.mark.chaos, pytest.mark.broker, pytest.mark.timeout(300)]

TRIGGER = """
[[triggers]]
id = "{name}"
kind = "webhook"
provider = "github"
match = {{ events = ["{name}"] }}
handler = "{name}"
"""

HANDLERS = """
import asyncio, os, time
from pathlib import Path

async def waits(event):
    await asyncio.sleep(0.2)

def listens(event, context):
    context.cancelled.wait(0.2)

def computes(event):
    with open(Path(__file__).with_name("pids.log"), "a") as pids:
        pids.write(f"{os.getpid()}\\n")
    time.sleep(0.05)

async def long(event, context):
    flag = Path(__file__).with_name("long.flag")
    Path(__file__).with_name("long.begun").write_text(context.attempt_id)
    await asyncio.sleep(60 if flag.exists() else 0)

def slow(event):
    time.sleep(0.05)
"""


class App:
    """Stages in one process, invokers in their own."""

    def __init__(
        self,
        broker: PrivateBroker,
        folder: Path,
        names: Iterable[str],
        more: str = "",
        **changes: int,
    ) -> None:
        quick = {
            "session_timeout_ms": 4_000,
            "heartbeat_interval_ms": 800,
            "transaction_timeout_ms": 5_000,
            "lease_ms": 12_000,
            "drain_ms": 12_000,
        }
        self.settings: Settings = settings_for_app(broker.start(), folder, **quick, **changes)
        provision(self.settings)
        triggers = [TRIGGER.format(name=name) for name in names]
        placed = ['executor = "process"\n' if "computes" in each else "" for each in triggers]
        text = "".join(each + place for each, place in zip(triggers, placed, strict=True))
        self.manifest = write_manifest(folder / "app", text + more, HANDLERS)
        self.stages = self.member("stages", "registry,inbox,dispatch", folder)

    def member(self, name: str, roles: str, folder: Path) -> Member:
        own = replace(self.settings, state_dir=folder / name)
        return Member(name, roles, own, folder, ["--manifest", str(self.manifest)])

    def pids(self) -> set[int]:
        """Processes that have run a handler."""
        log = self.manifest.with_name("pids.log")
        return {int(line) for line in log.read_text().split()} if log.exists() else set()


class Load(threading.Thread):
    """Events of several kinds in turn, at a steady rate."""

    def __init__(self, settings: Settings, kinds: list[str], count: int, pause_s: float) -> None:
        events = [event(number, kind=kinds[number % len(kinds)]) for number in range(count)]
        super().__init__(target=lambda: asyncio.run(emit(settings, events, pause_s=pause_s)))
        self.ids = [each["id"] for each in events]
        self._settings = settings

    def wait_for(self, share: float, timeout_s: float = 120.0) -> None:
        """Return once so much of it has its outcome."""
        wanted = int(len(self.ids) * share)
        wait_until(
            f"{wanted} outcomes", lambda: len(terminal_records(self._settings)) >= wanted, timeout_s
        )


def alive(pids: set[int]) -> set[int]:
    """Those of them that still run."""

    def runs(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    return {pid for pid in pids if runs(pid)}


def lost(settings: Settings) -> int:
    """Leases that ran out."""
    return len(read(settings, "triggers.lifecycle", {"InvocationLost"}))


@pytest.mark.soak
def test_a_rolling_restart_of_the_invokers_loses_and_cancels_nothing(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kinds = ["waits", "listens", "computes"]
    app = App(private_broker, tmp_path, kinds)
    first, second = (app.member(f"invoker-{n}", "invoker", tmp_path) for n in (0, 1))
    with Fleet([app.stages, first, second], supervise=False) as fleet:
        fleet.wait_ready()
        apply(app.settings, app.manifest)
        load = Load(app.settings, kinds, 600, 0.03)
        load.start()
        load.wait_for(0.1)
        for number, member in enumerate((first, second)):
            assert member.terminate() == 0
            member.start()
            member.wait_ready(times=2)
            load.wait_for(0.3 + 0.2 * number)
        load.join()
        load.wait_for(1.0)
        assert_one_outcome_each(app.settings, load.ids)
        assert lost(app.settings) == 0
        assert not read(app.settings, "trigger.dlq")
        assert not read(app.settings, "trigger.attempts", {"retry_scheduled"})
        assert set(fleet.terminate().values()) == {0}
    assert_audit_is_clean(app.settings)
    assert app.pids()
    assert alive(app.pids()) == set()


@pytest.mark.soak
def test_what_does_not_end_while_an_invoker_stops_is_issued_again_at_once_and_uncounted(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    app = App(private_broker, tmp_path, ["long"])
    invoker = app.member("invoker", "invoker", tmp_path)
    flag, begun = (app.manifest.with_name(f"long.{each}") for each in ("flag", "begun"))
    flag.touch()
    with Fleet([app.stages, invoker], supervise=False) as fleet:
        fleet.wait_ready()
        apply(app.settings, app.manifest)
        asyncio.run(emit(app.settings, [event("held", kind="long")]))
        wait_until("it runs", begun.exists)
        flag.unlink()
        assert invoker.terminate() == 0
        invoker.start()
        wait_until("it has ended", lambda: terminal_records(app.settings))
        assert_one_outcome_each(app.settings, ["trigger_evt_held"])
        (reissued,) = read(app.settings, "triggers.lifecycle", {"InvocationReissued"})
        assert reissued.value["reason"] == "interrupted"
        assert lost(app.settings) == 0
        (attempt,) = read(app.settings, "trigger.attempts", {"attempt_recorded"})
        assert (attempt.value["attempt"], attempt.value["outcome"]) == (1, "success")
        assert set(fleet.terminate().values()) == {0}


def test_killed_invokers_leave_no_process_and_no_event_behind(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kinds = ["waits", "computes"]
    app = App(private_broker, tmp_path, kinds)
    victims = [app.member(f"invoker-{n}", "invoker", tmp_path) for n in (0, 1)]
    with Fleet([app.stages, *victims], supervise=False) as fleet:
        fleet.wait_ready()
        apply(app.settings, app.manifest)
        load = Load(app.settings, kinds, 400, 0.02)
        load.start()
        for number, victim in enumerate(victims):
            load.wait_for(0.2 + 0.2 * number)
            victim.kill()
            assert victim.process is not None
            assert victim.process.wait(30) == -signal.SIGKILL
            victim.start()
            victim.wait_ready(times=2)
        load.join()
        load.wait_for(1.0)
        assert_one_outcome_each(app.settings, load.ids)
        assert set(fleet.terminate().values()) == {0}
    assert_audit_is_clean(app.settings)
    wait_until("no process is left", lambda: not alive(app.pids()))
    assert os.getpid() not in app.pids()


@pytest.mark.soak
def test_inbox_waits_for_slow_invokers_and_a_kill_meanwhile_strands_nothing(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    more = "[orchestrator]\npumps = { max_outstanding = 10 }\n"
    app = App(private_broker, tmp_path, ["slow"], more, invoker_max_outstanding=2)
    invoker = app.member("invoker", "invoker", tmp_path)
    count = 600
    with Fleet([app.stages, invoker], supervise=False) as fleet:
        fleet.wait_ready()
        apply(app.settings, app.manifest)
        load = Load(app.settings, ["slow"], count, 0.0)
        load.start()
        load.join()
        wait_until(
            "a pause is reported",
            lambda: read(app.settings, "orchestrator.lifecycle", {"pump_paused"}),
        )
        issued = len(read(app.settings, "trigger.invocations", {"invoke"}))
        ended = len(terminal_records(app.settings))
        assert issued < count / 2
        assert issued - ended <= 200  # the bound, what a second brings, and what was read late
        app.stages.kill()
        assert app.stages.process is not None
        app.stages.process.wait(30)
        app.stages.start()
        app.stages.wait_ready(times=2)
        load.wait_for(1.0, 180)
        assert_one_outcome_each(app.settings, load.ids)
        reports = read(app.settings, "orchestrator.lifecycle")
        paused = [each.value for each in reports if each.kind == "pump_paused"]
        assert all(each["outstanding"] >= each["max_outstanding"] for each in paused)
        assert {each.kind for each in reports} >= {"pump_paused", "pump_resumed"}
        assert set(fleet.terminate().values()) == {0}
    assert_audit_is_clean(app.settings)
