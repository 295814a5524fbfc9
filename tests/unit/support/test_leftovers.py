"""A test run leaves no process behind, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.leftovers import nothing_left_in

ROOT = Path(__file__).parents[3]
SLEEPER = "import sys, threading; print('up', flush=True); threading.Event().wait()"
KILLED_RUN = """
import os, signal, subprocess, sys
from pathlib import Path
from tests.support.leftovers import nothing_left_in

with nothing_left_in(Path(sys.argv[1])):
    command = [sys.executable, "-c", sys.argv[2], sys.argv[1]]
    sleeper = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    sleeper.stdout.readline()
    os.kill(sleeper.pid, signal.SIGSTOP)
    print(sleeper.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_works_in_the_folder_is_named_and_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLEEPER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sleeper:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        with pytest.raises(AssertionError, match=str(tmp_path)), nothing_left_in(tmp_path):
            pass
        assert sleeper.poll() is not None


def test_a_killed_run_leaves_nothing_not_even_what_stands_still(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_RUN, str(tmp_path), SLEEPER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert run.wait(30) != 0
    try:
        psutil.Process(pid).wait(30)
    except psutil.NoSuchProcess:
        return
    assert not psutil.pid_exists(pid)
