"""`harn fleet` on a file of this host: who runs turns, and how many there are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streams.cli.main import main
from streams.edge.turns.sql_turns import open_sqlite_turns
from streams.edge.turns.turn_store import FleetWorker


def fleet(*options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["fleet", *options])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TASK_QUEUE_BACKEND", "sqlite")
    turns = open_sqlite_turns(tmp_path, consumer="test")
    turns.queue.put({"session_id": "sess-9"})
    turns.store.beat(
        FleetWorker(
            worker_id="w1",
            host="hostB",
            capacity=4,
            active_sessions=("sess-9",),
            queue_backend="sqlite",
        )
    )
    turns.close()
    return tmp_path


def test_8_26_a_worker_is_shown_with_its_sessions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fleet("--json", "--state-dir", str(folder)) == 0
    told = json.loads(capsys.readouterr().out)
    (worker,) = told["dispatch_workers"]
    assert (worker["worker_id"], worker["host"], worker["capacity"]) == ("w1", "hostB", 4)
    assert worker["active_sessions"] == ["sess-9"]
    assert (told["queue_backend"], told["queue_depth"]) == ("sqlite", 1)


def test_people_get_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet("--state-dir", str(folder)) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split() == ["w1", "hostB", "4", "1"]
    assert "1 worker, 1 turn on sqlite" in shown.err


def test_who_watches_sees_it_change(folder: Path) -> None:
    command = [sys.executable, "-m", "streams.cli.main", "fleet", "--watch", "--json"]
    environment = {**os.environ, "HARN_STATE_DIR": str(folder)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert len(json.loads(watching.stdout.readline())["dispatch_workers"]) == 1
        turns = open_sqlite_turns(folder, consumer="test")
        turns.store.beat(
            FleetWorker(
                worker_id="w2",
                host="hostC",
                capacity=1,
                active_sessions=(),
                queue_backend="sqlite",
            )
        )
        turns.close()
        while len(json.loads(watching.stdout.readline())["dispatch_workers"]) != 2:
            pass
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130


def test_a_folder_in_which_nobody_works_is_refused_and_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TASK_QUEUE_BACKEND", "sqlite")
    mistyped = tmp_path / "mistyped"
    assert fleet("--state-dir", str(mistyped)) == 5
    said = capsys.readouterr().err
    assert f"{mistyped}/agent_dispatch_queue.db" in said.replace("\n", "")
    assert "there is no such file" in said
    assert "HARN_STATE_DIR" in said
    assert not mistyped.exists()
