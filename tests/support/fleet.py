"""Processes of the application under test: started, killed, stopped, resumed and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from streams.settings import Settings
from tests.support.eventually import PATIENCE_S

_MEMBER = Path(__file__).with_name("member.py")
_ROOT = Path(__file__).parents[2]
_POLL_S = 0.1

T = TypeVar("T")


def wait_until(what: str, look: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
    """Look until the answer is true; AssertionError naming `what` when time runs out."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        threading.Event().wait(_POLL_S)


@dataclass
class Member:
    """One process; its output goes to a file that failing tests show."""

    name: str
    roles: str
    settings: Settings
    folder: Path
    arguments: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    exits: list[int] = field(default_factory=list)
    started_at: int = 0  # where in its log the last start begins

    @property
    def command(self) -> Sequence[str]:
        """What is run, before its arguments."""
        return sys.executable, str(_MEMBER), "--roles", self.roles

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self, *extra: str) -> Self:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("HARN_", "KAFKA_"))},
            **self.settings.environment(),
            "PYTHONPATH": str(_ROOT),
            "PYTHONUNBUFFERED": "1",
        }
        command = [*self.command, *self.arguments, *extra]
        with self.log.open("ab") as output:
            self.started_at = output.tell()
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        return self

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def stop_the_clock(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def terminate(self, timeout_s: float = PATIENCE_S) -> int:
        """Ask it to stop, and wait; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def said(self, text: str) -> int:
        """How often a text stands in its log."""
        return self.log.read_text(errors="replace").count(text) if self.log.exists() else 0

    def wait_ready(self, timeout_s: float = PATIENCE_S, *, times: int = 1) -> None:
        def look() -> bool:
            assert self.running, (
                f"{self.name} ended with {self.process and self.process.poll()}:\n{self.tail()}"
            )
            return self.said(" ready ") >= times

        wait_until(f"{self.name} is ready", look, timeout_s)

    @property
    def http_url(self) -> str:
        """Where its ingest listens, by its log: ports that it picked for itself are nobody's."""
        [port] = re.findall(r" http_listening .*\bport=(\d+)", self.log.read_text())
        return f"http://127.0.0.1:{port}"

    @property
    def is_up(self) -> bool:
        """Whether it has become ready since it was last started."""
        return b" ready " in self.log.read_bytes()[self.started_at :]

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Fleet:
    """Members that are started again whenever they end, until the fleet is closed."""

    def __init__(self, members: Iterable[Member], *, supervise: bool = True) -> None:
        self.members = {member.name: member for member in members}
        self._supervise = supervise
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        for member in self.members.values():
            member.start()
        if self._supervise:
            self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._supervise:
            self._thread.join()
        for member in self.members.values():
            self._end(member)
        if error is not None:
            for member in self.members.values():
                sys.stderr.write(f"---- {member.name} exits={member.exits}\n{member.tail()}\n")

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def wait_ready(self, timeout_s: float = PATIENCE_S) -> None:
        for member in self.members.values():
            member.wait_ready(timeout_s)

    def wait_up(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until members that failed on the way are back as well."""
        wait_until(
            "every member is up",
            lambda: all(member.is_up for member in self.members.values()),
            timeout_s,
        )

    def terminate(self, timeout_s: float = PATIENCE_S) -> dict[str, int]:
        """Stop supervising and every member, all at once; returns exit codes.

        Members that failed on the way are waited for: one that only starts ends by the signal.
        """
        if self._supervise:
            self.wait_up()
        self._closing.set()
        if self._supervise:
            self._thread.join()
        for member in self.members.values():
            if member.running:
                member.signal(signal.SIGTERM)
        return {
            member.name: member.process.wait(timeout_s)
            for member in self.members.values()
            if member.process is not None
        }

    def _watch(self) -> None:
        while not self._closing.wait(_POLL_S):
            for member in self.members.values():
                process = member.process
                if process is not None and (code := process.poll()) is not None:
                    member.exits.append(code)
                    member.start()

    @staticmethod
    def _end(member: Member) -> None:
        process = member.process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
