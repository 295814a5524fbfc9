"""Processes under measurement: started, watched through their log, and ended by their id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from streams.settings import Settings

_STOP_S = 30.0


class Process:
    """A child and its log, which is one JSON object a line on its standard error."""

    def __init__(self, arguments: Sequence[str], settings: Settings) -> None:
        self.started_s = time.monotonic()
        self._child = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env={**os.environ, **settings.environment()},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self.other_lines: list[str] = []
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its id."""
        return self._child.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._child.poll() is not None

    def _read(self) -> None:
        assert self._child.stderr is not None, "standard error is a pipe"
        for line in self._child.stderr:
            with self._heard:
                try:
                    self.events.append({**json.loads(line), "heard_s": time.monotonic()})
                except ValueError:
                    self.other_lines.append(line)
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

    def wait_for(self, event: str, timeout_s: float = 60.0, *, after: int = 0) -> dict[str, Any]:
        """The first log event of that name, not counting the first `after` ones.

        Raises: RuntimeError when the process ends before, TimeoutError.
        """
        deadline = time.monotonic() + timeout_s
        with self._heard:
            while True:
                found = [each for each in self.events if each.get("event") == event]
                if len(found) > after:
                    return found[after]
                if not self._reader.is_alive():
                    raise RuntimeError(f"the process ended before {event}:\n{self.tail()}")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no {event} within {timeout_s} s:\n{self.tail()}")
                self._heard.wait(0.2)

    def tail(self) -> str:
        """The last lines of its log."""
        return "".join(self.other_lines[-20:]) + "\n".join(str(each) for each in self.events[-10:])

    def kill(self) -> None:
        """End it as a crash does."""
        self._child.kill()
        self._child.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._child.send_signal(number)

    def stop(self) -> float:
        """Ask it to end, and wait; returns how long that took, s.  RuntimeError if it failed."""
        asked_s = time.monotonic()
        self._child.terminate()
        code = self._child.wait(_STOP_S)
        if code != 0:
            raise RuntimeError(f"the process ended with {code}:\n{self.tail()}")
        return time.monotonic() - asked_s

    def end(self) -> None:
        """Make sure that nothing of it is left."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()


@contextmanager
def running(arguments: Sequence[str], settings: Settings) -> Iterator[Process]:
    """A process for the duration of the block; nothing of it is left afterwards."""
    process = Process(arguments, settings)
    try:
        yield process
    finally:
        process.end()
