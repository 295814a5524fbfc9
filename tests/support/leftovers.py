"""Processes that a test run has left behind: found by the folder that all of them work in.

A broker outlives its starter on purpose, so a run that is killed cannot stop what it started.  As a
program, `python leftovers.py FOLDER` waits until its standard input ends, which it does however the
run ends, and then ends what works in the folder.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

# What tests start; a pager that somebody opened on a log is none of our business.
_PROGRAMS = ("java", "postgres", "python", "sh")
_END_S = 2.0


def find_leftovers(folder: Path, *, ours: Iterable[int] = ()) -> list[psutil.Process]:
    """Return processes whose command or environment names a place in `folder`, except `ours`."""
    spared = {psutil.Process().pid, *ours}
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.pid not in spared and _works_in(process, f"{folder}/")
    ]


def _works_in(process: psutil.Process, folder: str) -> bool:
    try:
        if not process.name().startswith(_PROGRAMS) or process.status() == psutil.STATUS_ZOMBIE:
            return False
        words = [*process.cmdline(), *process.environ().values()]
    except psutil.Error:  # it ended meanwhile, or is another user's
        return False
    return any(folder in f"{word}/" for word in words)


def end_leftovers(processes: list[psutil.Process]) -> None:
    """Kill them, also those that stand still, and wait until they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_END_S)


@contextmanager
def nothing_left_in(folder: Path) -> Iterator[None]:
    """Assert that nothing works in `folder` after the block; end it all even if we are killed."""
    command = [sys.executable, __file__, str(folder)]
    # A session of its own: the Ctrl-C that ends the run must not end its watcher first.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        yield
        ours = {watcher.pid, *(process.pid for process in psutil.Process().parents())}
        _, left = psutil.wait_procs(find_leftovers(folder, ours=ours), timeout=_END_S)
        commands = [" ".join(process.info["cmdline"]) for process in left]
        end_leftovers(left)
    assert not commands, f"still running after the tests: {commands}"


def main() -> None:
    """Wait for the end of the run, however it ends, and clean up."""
    ours = [process.pid for process in psutil.Process().parents()]
    sys.stdin.read()
    end_leftovers(find_leftovers(Path(sys.argv[1]), ours=ours))


if __name__ == "__main__":
    main()
