"""Leases: an invoker that dies or stands still loses its invocations, and only then."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from streams.core.record import Position
from streams.kafka import make_admin, make_consumer
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

pytestmark = [pytest.mark.chaos, pytest.mark.broker]

GROUP = "harn.invoker"
MAILBOX = "trigger.dispatches"
LEASE_MS = 12_000
EVENTS = 12

MANIFEST = """
[[triggers]]
id = "slow"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "slow"
"""

HANDLERS = """
import asyncio, os
from pathlib import Path

async def slow(event, context):
    with open(Path(__file__).with_name("starts.log"), "a") as starts:
        starts.write(f"{context.attempt_id} {os.getpid()}\\n")
    while not Path(__file__).with_name("may-end").exists():
        await asyncio.sleep(0.05)
"""


class App:
    """One member for the stages, invokers of their own, handlers that end when they are told."""

    def __init__(self, broker: PrivateBroker, folder: Path) -> None:
        self.settings: Settings = settings_for_app(
            broker.start(),
            folder,
            # Short, but long enough for a machine that has other things to do as well.
            session_timeout_ms=4_000,
            heartbeat_interval_ms=800,
            transaction_timeout_ms=5_000,
            lease_ms=LEASE_MS,
            drain_ms=LEASE_MS,
        )
        provision(self.settings)
        self.manifest = write_manifest(folder / "app", MANIFEST, HANDLERS)
        self.stages = self._member("stages", "registry,inbox,dispatch", folder)
        self.invokers = [self._member(f"invoker-{n}", "invoker", folder) for n in (0, 1)]

    def _member(self, name: str, roles: str, folder: Path) -> Member:
        own = replace(self.settings, state_dir=folder / name)
        return Member(name, roles, own, folder, ["--manifest", str(self.manifest)])

    def emit(self) -> None:
        asyncio.run(emit(self.settings, (event(number) for number in range(EVENTS))))

    def let_handlers_end(self) -> None:
        self.manifest.with_name("may-end").touch()

    def wait_shared(self) -> None:
        """Return once both invokers have partitions: what comes before goes to the first one."""
        admin = make_admin(self.settings)

        def look() -> bool:
            members = admin.describe_consumer_groups([GROUP])[GROUP].result(30).members
            return len(members) == 2 and all(each.assignment.topic_partitions for each in members)

        wait_until("both invokers have partitions", look)

    def starts(self) -> list[tuple[str, int]]:
        """Attempt id and process of every start of a handler."""
        log = self.manifest.with_name("starts.log")
        lines = log.read_text().splitlines() if log.exists() else []
        return [(attempt_id, int(pid)) for attempt_id, pid in (line.split() for line in lines)]

    def leased(self) -> dict[tuple[str, int], int]:
        """Append time of the last word that an invocation runs, by dispatch id and fence."""
        words = read(self.settings, MAILBOX, {"invocations_running"})
        return {
            (running["dispatch_id"], running["fence"]): word.timestamp
            for word in words
            for running in word.value["running"]
        }

    def wait_leased(self, victim: Member) -> None:
        """Return once leases alone guard what the victim runs: its offsets are committed."""

        def look() -> bool:
            return bool(self.begun(victim)) and self._all_committed()

        wait_until(f"{victim.name} holds leases", look)

    def _all_committed(self) -> bool:
        intents = read(self.settings, "trigger.invocations", {"invoke"})
        ends = {entry.partition: entry.offset + 1 for entry in intents}
        consumer = make_consumer(self.settings, group_id=GROUP)
        try:
            found = consumer.committed([TopicPartition("trigger.invocations", p) for p in ends], 30)
        finally:
            consumer.close()
        done = all(each.offset >= ends[each.partition] for each in found)
        return len(intents) >= EVENTS and done

    def begun(self, victim: Member) -> set[str]:
        """Dispatches whose handler began in the victim."""
        assert victim.process is not None
        pid = victim.process.pid
        return {attempt_id.rpartition(".")[0] for attempt_id, by in self.starts() if by == pid}

    def unfinished(self, victim: Member) -> set[str]:
        """Dispatches whose handler began in the victim, which never told how it ended.

        Ask once every dispatch has ended: what the victim told last is visible by then.
        """
        told = read(self.settings, MAILBOX, {"invocation_completed"})
        first = {e.value["dispatch_id"] for e in told if e.value["fence"] == 1}
        return self.begun(victim) - first

    def wait_outcomes(self) -> None:
        wait_until("outcomes", lambda: sum(terminal_records(self.settings).values()) >= EVENTS)
        assert_one_outcome_each(self.settings, (f"trigger_evt_{n}" for n in range(EVENTS)))

    def check_reissues(self, lost: set[str]) -> None:
        """Each lost dispatch was issued again, by the first record past its lease at the latest."""
        leased = self.leased()
        issued = {
            (entry.value["dispatch_id"], entry.value["fence"]): entry
            for entry in read(self.settings, "trigger.invocations", {"invoke"})
        }
        mailbox = read(self.settings, MAILBOX)
        for dispatch_id in lost:
            again = issued[dispatch_id, 2]
            assert again.value["attempt"] == 1, "a lost lease is not a failed attempt"
            cause = Position.parse(again.headers["cause"])
            late = [
                entry.offset
                for entry in mailbox
                if entry.partition == cause.partition
                and entry.timestamp >= leased[dispatch_id, 1] + LEASE_MS
            ]
            assert cause.offset <= min(late, default=cause.offset), dispatch_id


def test_a_killed_invokers_attempts_are_issued_again(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    app = App(private_broker, tmp_path)
    with Fleet([app.stages, *app.invokers], supervise=False) as fleet:
        fleet.wait_ready()
        apply(app.settings, app.manifest)
        app.wait_shared()
        app.emit()
        victim = app.invokers[0]
        app.wait_leased(victim)
        victim.kill()
        app.let_handlers_end()
        app.wait_outcomes()
        mine = app.unfinished(victim)
        assert mine, "the killed invoker ran something"
        codes = fleet.terminate()
    assert codes["stages"] == codes["invoker-1"] == 0
    app.check_reissues(mine)
    assert_audit_is_clean(app.settings)


@pytest.mark.soak
def test_a_stopped_invokers_outcome_is_refused(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    app = App(private_broker, tmp_path)
    with Fleet([app.stages, *app.invokers], supervise=False) as fleet:
        fleet.wait_ready()
        apply(app.settings, app.manifest)
        app.wait_shared()
        app.emit()
        victim = app.invokers[0]
        app.wait_leased(victim)
        victim.stop_the_clock()
        app.let_handlers_end()
        app.wait_outcomes()
        mine = app.unfinished(victim)
        assert mine, "the stopped invoker ran something"
        victim.resume()
        wait_until(
            "the stale outcomes are refused",
            lambda: mine <= {d for d, outcome in _refused(app.settings) if outcome == "success"},
        )
        assert set(fleet.terminate().values()) == {0}
    app.check_reissues(mine)
    app.wait_outcomes()
    assert_audit_is_clean(app.settings)


def _refused(settings: Settings) -> set[tuple[str, str]]:
    entries = read(settings, "triggers.lifecycle", {"OutcomeRefused"})
    return {(entry.value["dispatch_id"], entry.value["outcome"]) for entry in entries}


def test_a_rebalance_without_a_crash_runs_no_handler_twice(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    app = App(private_broker, tmp_path)
    first, second = app.invokers
    with Fleet([app.stages, first], supervise=False) as fleet:
        fleet.wait_ready()
        apply(app.settings, app.manifest)
        app.emit()
        wait_until("handlers run", lambda: len(app.starts()) == EVENTS)
        fleet.members[second.name] = second
        second.start().wait_ready()
        leaving = threading.Thread(target=first.terminate)
        leaving.start()
        app.let_handlers_end()
        app.wait_outcomes()
        leaving.join()
        assert fleet.terminate() == {"stages": 0, "invoker-0": 0, "invoker-1": 0}
    twice = [attempt for attempt, count in Counter(a for a, _ in app.starts()).items() if count > 1]
    assert not twice, f"ran twice: {twice}"
    assert not read(app.settings, "triggers.lifecycle", {"InvocationLost"})
    assert_audit_is_clean(app.settings)
