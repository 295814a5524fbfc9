"""Keeps one child process running: what fails with nothing half done is started again.

    start → runs → exits 0: done
                 → exits otherwise: wait (0.2 s, doubled up to 10 s; reset after a minute of work),
                 start again → refused to start for a reason that does not pass (settings,
                 topology, manifest): done, same code

SIGTERM and SIGINT are handed on to the child, which drains; its exit then ends the supervisor.

Source: DESIGN "Failure".
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from types import FrameType

from streams.errors import ConfigError, ManifestError, TopologyError
from streams.observe import logs

_log = logs.logger(__name__)

_BACKOFF_MIN_S = 0.2
_BACKOFF_MAX_S = 10.0
_STEADY_S = 60.0
_FINAL_CODES = frozenset({ConfigError.exit_code, TopologyError.exit_code, ManifestError.exit_code})


class Supervisor:
    """Runs a command until it is told to stop."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self.restarts = 0

    def run(self) -> int:
        """Supervise until the child ends for good; returns its exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hand_on)
        backoff_s = _BACKOFF_MIN_S
        while True:
            started = time.monotonic()
            code = self._run_once()
            if code == 0 or code in _FINAL_CODES or self._stopping.is_set():
                return code if code >= 0 else 128 - code
            if time.monotonic() - started >= _STEADY_S:
                backoff_s = _BACKOFF_MIN_S
            self.restarts += 1
            _log.warning(
                "role_restarting",
                extra={"exit_code": code, "restarts": self.restarts, "after_s": backoff_s},
            )
            if self._stopping.wait(backoff_s):
                return 0
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    def _run_once(self) -> int:
        # A process group of its own: a Ctrl-C in the terminal reaches the child once, from here.
        self._child = subprocess.Popen(self._command, start_new_session=True)  # noqa: S603 - our own command line
        if self._stopping.is_set():
            self._child.terminate()
        return self._child.wait()

    def _hand_on(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()
