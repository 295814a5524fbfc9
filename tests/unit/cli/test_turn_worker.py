"""`agent-dispatch-worker` as a process: it runs what is enqueued, and stops as it is asked to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streams.cli.main import run_and_exit
from streams.cli.turn_worker import app
from streams.edge.turns.enqueuer import Enqueuer
from streams.edge.turns.sql_ledger import SqlLedger
from streams.edge.turns.sql_turns import SqlTurns, open_sqlite_turns
from streams.edge.turns.turn_store import Status
from tests.support.eventually import eventually

MANIFEST = """
[agents]
default = "agents::work"
slow = "agents::slow"
[exports]
agents = "agents.py"
"""
AGENTS = """
def work(turn):
    return f"did {turn.objective}"

async def slow(turn):
    await turn.cancelled
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "harn.toml").write_text(MANIFEST)
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


@pytest.fixture
def turns(folder: Path) -> Iterator[SqlTurns]:
    found = open_sqlite_turns(folder / "state", consumer="test")
    yield found
    found.close()


@contextmanager
def worker(folder: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "streams.cli.turn_worker",
        "--state-dir",
        str(folder / "state"),
    ]
    root = Path(__file__).resolve().parents[3]
    variables = {
        **os.environ,
        "PYTHONPATH": str(root),
        "TASK_QUEUE_BACKEND": "sqlite",
        "HARN_METRICS_PORT": "0",
        **environment,
    }
    with subprocess.Popen(
        [*command, *options], cwd=folder, env=variables, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def status(turns: SqlTurns, job_id: str) -> Status:
    found = turns.store.read(job_id)
    assert found is not None
    return found.status


async def test_it_runs_what_is_enqueued_and_ends_on_sigterm(folder: Path, turns: SqlTurns) -> None:
    enqueuer = Enqueuer(SqlLedger(turns))
    handle = await enqueuer.dispatch({"description": "it"})
    with worker(folder, "--workers", "4", "--worker-id", "w1") as process:
        await eventually(
            lambda: status(turns, handle["job_id"]) is Status.COMPLETED, "the turn's end"
        )
        (known,) = turns.store.workers()
        assert (known.worker_id, known.capacity, known.queue_backend) == ("w1", 4, "sqlite")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    found = turns.store.read(handle["job_id"])
    assert found is not None
    assert found.result == "did it"
    assert turns.store.workers() == [], "it has ended in order"


async def test_a_turn_that_does_not_end_in_the_drain_time_is_given_back(
    folder: Path, turns: SqlTurns
) -> None:
    handle = await Enqueuer(SqlLedger(turns)).dispatch({"description": "x", "agent_name": "slow"})
    with worker(folder, HARN_DRAIN_MS="0") as process:
        await eventually(lambda: status(turns, handle["job_id"]) is Status.RUNNING, "its begin")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert status(turns, handle["job_id"]) is Status.PENDING
    assert turns.queue.get() is not None


def said(process: subprocess.Popen[str], event: str) -> str:
    """Read its log up to a line with an event."""
    assert process.stderr is not None
    return next(line for line in process.stderr if event in line)


async def test_sighup_reads_the_agents_anew_and_keeps_those_before_when_they_are_bad(
    folder: Path, turns: SqlTurns
) -> None:
    enqueuer = Enqueuer(SqlLedger(turns))

    async def result() -> str | None:
        handle = await enqueuer.dispatch({"description": "it"})
        await eventually(lambda: status(turns, handle["job_id"]) is Status.COMPLETED, "its end")
        found = turns.store.read(handle["job_id"])
        return None if found is None else found.result

    manifest = folder / "harn.toml"
    with worker(folder) as process:
        assert await result() == "did it"
        (folder / "others.py").write_text("def work(turn):\n    return 'otherwise'\n")
        manifest.write_text(MANIFEST.replace("agents.py", "others.py").replace("slow", "# slow"))
        process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(said, process, "worker_manifest_reloaded")
        assert await result() == "otherwise"
        manifest.write_text(MANIFEST.replace("::work", "::nothing"))
        process.send_signal(signal.SIGHUP)
        told = await asyncio.to_thread(said, process, "worker_manifest_not_reloaded")
        assert "nothing" in told
        assert await result() == "otherwise"


@pytest.mark.parametrize(
    ("options", "environment", "code", "told"),
    [
        (["--workers", "0"], {}, 2, "--workers"),
        (["--worker-id", " "], {}, 2, "--worker-id is ' ', expected 1 to 200 printable"),
        (["--config", "none.toml"], {}, 4, "there is no such file, expected a manifest"),
        ([], {"TASK_QUEUE_BACKEND": "carrier-pigeon"}, 2, "TASK_QUEUE_BACKEND"),
    ],
)
def test_what_keeps_it_from_starting_is_told_with_an_exit_code(
    options: list[str],
    environment: dict[str, str],
    code: int,
    told: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    for name, value in {
        "HARN_METRICS_PORT": "0",
        "TASK_QUEUE_BACKEND": "sqlite",
        **environment,
    }.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SystemExit) as ended:
        run_and_exit(app, options, "agent-dispatch-worker")

    assert ended.value.code == code
    assert told in capsys.readouterr().err


def test_a_database_that_is_away_ends_it_without_telling_a_password(folder: Path) -> None:
    address = "postgresql://u:s3cret@127.0.0.1:1/x"
    with worker(folder, TASK_QUEUE_BACKEND="postgres", STATE_DB_URI=address) as process:
        assert process.wait(60) == 5
        assert process.stderr is not None
        shown = process.stderr.read()
    assert "the task queue postgresql://u@127.0.0.1:1/x is unavailable" in shown
    assert "s3cret" not in shown
    assert "Traceback" not in shown
    assert "ready" not in shown
