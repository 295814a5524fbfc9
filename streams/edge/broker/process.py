"""The broker as a process of the machine: started so that it outlives us, found again, ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from streams.edge.broker.files import BrokerFiles
from streams.errors import BrokerError

__all__ = ["MAIN_CLASS", "end", "find", "holder_of", "is_alive", "running_on", "spawn"]

MAIN_CLASS = "kafka.Kafka"

_TERM_S = 30.0
_KILL_S = 10.0
_POLL_S = 0.05


def spawn(arguments: Sequence[str | Path], console: Path) -> psutil.Process:
    """Start a process that belongs to nobody here: own session, output to `console`.

    A shell starts it and ends at once, so it is not our child: our end, a Ctrl-C in our terminal
    and our unread exit codes do not concern it.
    """
    launched = subprocess.run(  # noqa: S603 - the arguments are ours
        ["/bin/sh", "-c", '"$@" </dev/null >"$0" 2>&1 & echo $!', console, *arguments],
        start_new_session=True,
        capture_output=True,
        text=True,
        check=True,
    )
    try:
        return psutil.Process(int(launched.stdout))
    except psutil.NoSuchProcess as error:
        raise BrokerError(
            f"the embedded Kafka ended as soon as it was started: {_text_of(console)}",
            retryable=False,
        ) from error


def find(files: BrokerFiles) -> psutil.Process | None:
    """Return the broker that runs on this state directory, also one whose starter was killed."""
    memory = files.recall()
    if memory is not None:
        try:
            process = psutil.Process(memory.pid)
            same = abs(process.create_time() - memory.process_started_s) < 1
            if same and _runs(process, files.properties):
                return process
        except psutil.Error:
            pass  # gone; another one may run all the same
    return running_on(files.properties)


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie that nobody waits for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(process: psutil.Process) -> None:
    """Ask it to stop, which flushes its logs; after half a minute make it."""
    try:
        process.terminate()
        if not _ended_within(process, _TERM_S):
            process.kill()
            _ended_within(process, _KILL_S)
    except psutil.NoSuchProcess:
        return


def holder_of(port: int) -> str | None:
    """Return "name (pid n)" of what listens on a port, as far as this user may know."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN or connection.pid is None:
                continue
            if connection.laddr and connection.laddr.port == port:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return None
    return None


def running_on(properties: Path) -> psutil.Process | None:
    """Return the Kafka that was started with this properties file and still runs."""
    return next((each for each in psutil.process_iter() if _runs(each, properties)), None)


def _runs(process: psutil.Process, properties: Path) -> bool:
    try:
        line = process.cmdline()
    except psutil.Error:
        return False
    return MAIN_CLASS in line and line[-1] == str(properties) and is_alive(process)


def _ended_within(process: psutil.Process, seconds: float) -> bool:
    deadline_s = time.monotonic() + seconds
    while is_alive(process):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _text_of(console: Path) -> str:
    return console.read_text("utf-8", "replace").strip() or "it said nothing"
