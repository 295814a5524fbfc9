"""The supervisor keeps a child running, hands signals on, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from streams.errors import ManifestError, TopologyError
from tests.support.fleet import wait_until

RUN = """
import sys
from streams.observe import logs
from streams.supervisor import Supervisor
logs.configure("info", "text")
sys.exit(Supervisor(sys.argv[1:]).run())
"""

FAILS = "import sys; sys.exit(int(sys.argv[1]))"

# Fails twice, and then ends well; a file counts its starts.
THIRD_TIME_WELL = """
import pathlib, sys
starts = pathlib.Path(sys.argv[1])
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
print("told of", sys.argv[sys.argv.index("--restarts") + 1], "restarts", flush=True)
sys.exit(0 if len(starts.read_text()) > 2 else 9)
"""

# Says its pid, then lives until it is told to stop, or its lifeline is cut.
LIVES = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("child", os.getpid(), flush=True)
os.read(int(sys.argv[sys.argv.index("--lifeline") + 1]), 1)
"""

# Hears, but does not stop.
STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
print("child", os.getpid(), flush=True)
while True:
    signal.pause()
"""


@contextmanager
def supervised(folder: Path, code: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor in a process of its own, whose words go to `out`."""
    with (folder / "out").open("wb") as out:
        supervisor = subprocess.Popen(
            [sys.executable, "-c", RUN, sys.executable, "-c", code, *arguments],
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    try:
        yield supervisor
    finally:
        supervisor.kill()
        supervisor.wait(30)
        with suppress(ProcessLookupError, IndexError):
            os.kill(child(folder), signal.SIGKILL)


def said(folder: Path) -> str:
    return (folder / "out").read_text()


def child(folder: Path) -> int:
    """The pid that the child said."""
    return int(said(folder).split("child ")[1].split()[0])


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        not Path(f"/proc/{pid}/stat").exists() or " Z " not in Path(f"/proc/{pid}/stat").read_text()
    )


def test_what_fails_is_started_again_until_it_ends_well(tmp_path: Path) -> None:
    with supervised(tmp_path, THIRD_TIME_WELL, str(tmp_path / "starts")) as supervisor:
        assert supervisor.wait(60) == 0
    assert said(tmp_path).count("role_restarting exit_code=9") == 2
    assert "restarts=2 after_s=0.4" in said(tmp_path)
    assert [f"told of {count} restarts" in said(tmp_path) for count in range(3)] == [True] * 3


@pytest.mark.parametrize("code", [TopologyError.exit_code, ManifestError.exit_code])
def test_what_no_restart_mends_ends_the_supervisor(tmp_path: Path, code: int) -> None:
    with supervised(tmp_path, FAILS, str(code)) as supervisor:
        assert supervisor.wait(60) == code
    assert "role_restarting" not in said(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_handed_on(tmp_path: Path, number: int) -> None:
    with supervised(tmp_path, LIVES) as supervisor:
        wait_until("the child lives", lambda: "child" in said(tmp_path))
        supervisor.send_signal(number)
        assert supervisor.wait(60) == 0
        assert not lives(child(tmp_path))


def test_a_stop_while_it_waits_to_start_again_is_heard(tmp_path: Path) -> None:
    with supervised(tmp_path, FAILS, "9") as supervisor:
        # By the sixth failure it waits for seconds.
        wait_until("it waits", lambda: "restarts=5" in said(tmp_path))
        for _ in range(20):
            supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(60) == 0


def test_a_killed_supervisor_leaves_no_child(tmp_path: Path) -> None:
    with supervised(tmp_path, LIVES) as supervisor:
        wait_until("the child lives", lambda: "child" in said(tmp_path))
        supervisor.kill()
        wait_until("the child has ended", lambda: not lives(child(tmp_path)))


def test_a_second_interrupt_kills_a_child_that_does_not_stop(tmp_path: Path) -> None:
    with supervised(tmp_path, STUBBORN) as supervisor:
        wait_until("the child lives", lambda: "child" in said(tmp_path))
        supervisor.send_signal(signal.SIGINT)
        wait_until("it is asked", lambda: "told" in said(tmp_path))
        assert lives(child(tmp_path)), "one interrupt is a request"
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.wait(60) == 128 + signal.SIGKILL
