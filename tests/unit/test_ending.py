"""A process whose thread hangs in a call ends all the same, and says which thread it was."""

from __future__ import annotations

import json
import subprocess
import sys

_HANGS = """
import threading
from streams import ending
from streams.observe import logs

logs.configure("INFO", "json")
def asks_a_broker():
    threading.Event().wait()
threading.Thread(target=asks_a_broker, name="hangs-for-ever").start()
ending.end_within(float({seconds}))
"""

_ENDS = """
from streams import ending

ending.end_within(3600.0)
"""


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_hanging_thread_keeps_no_process_alive() -> None:
    ended = _run(_HANGS.format(seconds=0.05))
    assert ended.returncode == 1
    (said,) = (json.loads(line) for line in ended.stderr.splitlines() if "stop_overdue" in line)
    assert said["threads"] == "MainThread,hangs-for-ever"
    assert said["calls"]["hangs-for-ever"].startswith("wait (threading.py:")
    assert " < asks_a_broker (<string>:" in said["calls"]["hangs-for-ever"]


def test_a_process_that_ends_does_not_wait_for_its_deadline() -> None:
    ended = _run(_ENDS)
    assert (ended.returncode, ended.stderr) == (0, "")
