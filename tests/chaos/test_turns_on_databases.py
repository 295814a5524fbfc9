"""Workers of turns are killed and made to stand still: no turn is lost, none runs twice at once,
and turns of a session end in their order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns.turn_store import Status, TurnRecord
from tests.support import turn_worker
from tests.support.eventually import eventually
from tests.support.turn_worker import append, open_short_lived

pytestmark = pytest.mark.chaos

SESSIONS, TURNS, WORKERS = 12, 8, 4


@contextmanager
def worker(address: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        turn_worker.__name__,
        address,
        str(folder),
        str(folder / "log"),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.close()


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_kills_and_a_standstill_lose_and_double_nothing(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        address = ""
        if backend == "postgres":
            postgres = request.getfixturevalue("postgres")
            address = stack.enter_context(postgres.database())
        turns = open_short_lived(address, tmp_path)
        stack.callback(turns.close)
        ids = [f"s{session}-{turn}" for turn in range(TURNS) for session in range(SESSIONS)]
        for name in ids:
            session, _, _ = name.partition("-")
            turns.store.create(TurnRecord(record_id=name, kind="goal_loop", session_id=session))
            turn = AgentTurnEnvelope(
                job_id=name, session_id=session, payload_ref=name, enqueued_at_ms=0
            )
            turns.queue.put(turn.json_fields())

        def told(word: str) -> list[str]:
            lines = log.read_text().splitlines() if log.exists() else []
            return [line for line in lines if line.startswith(f"{word} ")]

        log = tmp_path / "log"
        workers = [stack.enter_context(worker(address, tmp_path)) for _ in range(WORKERS)]
        await eventually(lambda: bool(told("stands")), "a worker that stands still")
        stopped = int(told("stands")[0].split()[-1])
        for count in (20, 40):
            await eventually(lambda count=count: len(told("end")) >= count, f"{count} turns")
            victim = next(each for each in workers if each.pid != stopped and not each.poll())
            victim.kill()
            victim.wait()
            append(log, "killed", f"{victim.pid}", "-")
            workers.remove(victim)
            workers.append(stack.enter_context(worker(address, tmp_path)))
        await eventually(
            lambda: turns.queue.get_queue_size() == TURNS - 1, "all turns of the other sessions"
        )
        os.kill(stopped, signal.SIGCONT)
        await eventually(lambda: turns.queue.get_queue_size() == 0, "every turn")

        records = turns.store.records(limit=1_000)
    assert {each.status for each in records} == {Status.COMPLETED}
    assert len(records) == len(ids)
    assert_in_order([line for line in log.read_text().splitlines() if "stands" not in line])


def assert_in_order(lines: list[str]) -> None:
    """One at a time in a session, one after another; again only what a killed worker had begun."""
    running: dict[str, tuple[str, str]] = {}
    begun: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        word, name, pid = line.split()
        if word == "killed":
            running = {key: value for key, value in running.items() if value[1] != name}
            continue
        session, _, number = name.partition("-")
        if word == "start":
            assert session not in running, f"{line}, while {running[session]} runs"
            running[session] = (name, pid)
            begun[session].append(int(number))
        else:
            assert running.pop(session) == (name, pid), line
    for session, numbers in begun.items():
        assert numbers == sorted(numbers), f"{session} ran {numbers}"
        assert set(numbers) == set(range(TURNS)), f"{session} ran {numbers}"
