"""Turns on Kafka while their workers are killed and one stands still: each ends once, in order.

What the log says is judged by `harn audit verify`; what ran is told by the agents themselves.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from streams.settings import Settings
from tests.support.app_cluster import cli, provision, read, settings_for_app
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.kafka_turns import Api

pytestmark = [pytest.mark.chaos, pytest.mark.broker]

WORKERS, SLOTS = 4, 16

FATAL = "s0-05"
"""A kill from outside may come between two turns of its worker; what runs this one is in it."""

MANIFEST = """
[exports]
lib = "lib.py"

[agents]
default = "lib::work"
"""

AGENT = """
import asyncio
import os
import random
import signal

FATAL = {fatal!r}  # a turn that ends its worker the first time it runs
LOG = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def work(turn):
    os.write(LOG, f"{{turn.session_id}} {{turn.job_id}} {{os.getpid()}}\\n".encode())
    if turn.job_id == FATAL and not os.path.exists({log!r} + ".killed"):
        os.close(os.open({log!r} + ".killed", os.O_CREAT))
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(random.random() * 0.02)
"""


class TurnWorkerProcess(Member):
    """`agent-dispatch-worker`, as an operator runs it."""

    @property
    def command(self) -> Sequence[str]:
        return sys.executable, "-m", "streams.cli.turn_worker"


def test_each_turn_ends_once_and_in_order_whoever_is_killed_or_stands_still(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    _storm(private_broker, tmp_path, sessions=150, turns=10, kills=2)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_thousand_sessions_of_twenty_turns_outlive_many_kills(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    _storm(private_broker, tmp_path, sessions=1_000, turns=20, kills=20)


def _storm(broker: PrivateBroker, folder: Path, *, sessions: int, turns: int, kills: int) -> None:
    chance = random.Random(sessions)
    settings = settings_for_app(broker.start(), folder)
    provision(settings)
    log = folder / "ran.log"
    with Fleet(_workers(settings, folder, log)) as fleet:
        fleet.wait_ready()
        jobs = _enqueue(settings, sessions, turns)
        names = list(fleet.members)
        zombie = chance.choice(names)
        for number in range(kills + 1):
            _wait_for(log, len(jobs) * (number + 1) // (kills + 2))
            if number == kills // 2:
                fleet[zombie].stop_the_clock()
            else:
                fleet[chance.choice([each for each in names if each != zombie])].kill()
        _wait_until_ended(settings, len(jobs) - len(jobs) // (kills + 2))
        fleet[zombie].resume()
        _wait_until_ended(settings, len(jobs))
        codes = fleet.terminate()
    assert set(codes.values()) == {0}, codes
    claims = [each.value for each in read(settings, "agent.turns.claims", {"turn_claimed"})]
    again = {each["job_id"] for each in claims if each["attempt"] > 1}
    assert FATAL in again, "what a killed worker ran was not begun again"
    _assert_all_ran_in_order(log, jobs)
    finished = [each.value for each in read(settings, "agent.turns.claims", {"turn_finished"})]
    assert sorted(each["job_id"] for each in finished) == sorted(jobs)
    assert {each["outcome"] for each in finished} == {"completed"}
    for command in ("verify", "invariants"):
        verdict = cli(settings, "audit", command)
        assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def _workers(settings: Settings, folder: Path, log: Path) -> list[Member]:
    manifest = folder / "agents" / "harn.toml"
    manifest.parent.mkdir()
    manifest.write_text(MANIFEST)
    (manifest.parent / "lib.py").write_text(AGENT.format(log=str(log), fatal=FATAL))
    log.touch()
    return [
        TurnWorkerProcess(
            f"worker-{number}",
            "",
            replace(settings, state_dir=folder / f"worker-{number}"),
            folder,
            arguments=("--workers", str(SLOTS), "--config", str(manifest)),
        )
        for number in range(WORKERS)
    ]


def _enqueue(settings: Settings, sessions: int, turns: int) -> list[str]:
    """All turns, those of a session in the order of their numbers."""
    api = Api(settings)
    for number in range(sessions):
        api.session(f"s{number}")
    turns_of = [
        (f"s{number}-{turn:02}", f"s{number}")
        for turn in range(turns)
        for number in range(sessions)
    ]
    for job, session in turns_of:
        api.task(job, session)
    api.flush()  # a turn whose record is not there yet would be skipped
    for job, session in turns_of:
        api.turn(job, session)
    api.flush()
    return [job for job, _ in turns_of]


def _ran(log: Path) -> list[list[str]]:
    """Session, job and process of everything that was begun, in order."""
    return [line.split() for line in log.read_text().splitlines()]


def _wait_for(log: Path, count: int) -> None:
    wait_until(f"{count} turns were begun", lambda: len(_ran(log)) >= count)


def _wait_until_ended(settings: Settings, count: int) -> None:
    def ended() -> bool:
        return len(read(settings, "agent.turns.claims", {"turn_finished"})) >= count

    wait_until(f"{count} turns ended", ended)


def _assert_all_ran_in_order(log: Path, jobs: Sequence[str]) -> None:
    """A turn may have been begun again, but never after one that follows it in its session."""
    begun: dict[str, list[str]] = defaultdict(list)
    for session, job, _ in _ran(log):
        begun[session].append(job)
    for session, of_session in begun.items():
        assert of_session == sorted(of_session), f"{session} ran {of_session}"
    assert {job for of_session in begun.values() for job in of_session} == set(jobs)
