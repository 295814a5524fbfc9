"""A process whose thread hangs in a call ends all the same, and says which thread it was."""

from __future__ import annotations

import subprocess
import sys

_HANGS = """
import threading
from streams import ending
from streams.observe import logs

logs.configure("INFO", "json")
threading.Thread(target=threading.Event().wait, name="hangs-for-ever").start()
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
    assert "stop_overdue" in ended.stderr
    assert "hangs-for-ever" in ended.stderr


def test_a_process_that_ends_does_not_wait_for_its_deadline() -> None:
    ended = _run(_ENDS)
    assert (ended.returncode, ended.stderr) == (0, "")
