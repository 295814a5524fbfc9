"""Workers of turns in processes of their own: one is killed, another stands still."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections import defaultdict
from pathlib import Path
from subprocess import Popen

import pytest

from streams.core.turn.words import CLAIMS
from streams.settings import Settings
from tests.support.kafka_turns import (
    Api,
)
from tests.support.turn_processes import processes, said_by
from tests.support.turn_runs import of_run, words_about

pytestmark = [pytest.mark.broker]


def ended(settings: Settings, run: str) -> dict[str, list[str]]:
    """The jobs that have ended, by session, in the order of their ends."""
    done: dict[str, list[str]] = defaultdict(list)
    for each in of_run(settings, CLAIMS, run):
        if each.kind == "turn_finished":
            done[each.value["session_id"]].append(each.value["job_id"])
    return done


async def until_all_run(api: Api, run: str, workers: list[Popen[bytes]], folder: Path) -> None:
    """Enqueue turns of other sessions until each worker has run one."""
    waited = {f"{each.pid}" for each in workers}
    while waited:
        assert not [each for each in workers if each.poll() is not None], said_by(folder)
        session = f"{run}-warm{uuid.uuid4().hex[:6]}"
        api.enqueue(f"{session}-j", session)
        api.flush()
        await asyncio.sleep(0.05)  # the rate of the load
        waited -= {line.split()[2] for line in (folder / "log").read_text().splitlines()}


async def test_one_worker_is_killed_and_another_stands_still_and_each_turn_ends_once(
    settings: Settings, run: str, tmp_path: Path
) -> None:
    api = Api(settings)
    sessions = [f"{run}-s{number}" for number in range(24)]
    jobs = {each: [f"{each}-j{number}" for number in range(6)] for each in sessions}
    (tmp_path / "log").touch()
    with processes(settings, tmp_path, 3) as workers:
        await until_all_run(api, run, workers, tmp_path)
        for number in range(6):
            for each in sessions:
                api.enqueue(jobs[each][number], each)
        api.flush()
        killed, stands, stays = workers
        killed.kill()
        stands.send_signal(signal.SIGSTOP)
        while {each: ended(settings, run)[each] for each in sessions} != jobs:
            assert stays.poll() is None, said_by(tmp_path)
        stands.send_signal(signal.SIGCONT)
        for each in (stands, stays):
            each.terminate()
        assert [each.wait(120) for each in (stands, stays)] == [0, 0], said_by(tmp_path)
    assert {each: ended(settings, run)[each] for each in sessions} == jobs
    told = words_about(settings, run).values()
    assert {said[-1] for said in told} == {("turn_finished", "completed")}
    assert {[kind for kind, _ in said].count("turn_finished") for said in told} == {1}
