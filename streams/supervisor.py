"""Keeps one child process running: what fails with nothing half done is started again.

    start → runs → exits 0: done
                 → exits otherwise: wait (0.2 s, doubled up to 10 s; reset after a minute of work),
                 start again → refused to start for a reason that does not pass (settings,
                 topology, manifest): done, same code

SIGTERM and SIGINT are handed on to the child, which drains; its exit then ends the supervisor.  A
second SIGINT, of somebody who will not wait, kills it.

The child holds the reading end of a pipe whose writing end is the supervisor's: it ends as after a
SIGTERM when that closes, so that a supervisor which was killed leaves no process behind.

Source: DESIGN "Failure".
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from types import FrameType

from streams.errors import ConfigError, ManifestError, TopologyError
from streams.observe import logs

__all__ = ["LIFELINE", "RESTARTS", "Supervisor"]

_log = logs.logger(__name__)

LIFELINE = "--lifeline"
"""Option with which the child is told the number of the pipe's file descriptor."""

RESTARTS = "--restarts"
"""Option with which the child is told how often it was started again: a metric of its own."""

_BACKOFF_MIN_S = 0.2
_BACKOFF_MAX_S = 10.0
_STEADY_S = 60.0
_FINAL_CODES = frozenset({ConfigError.exit_code, TopologyError.exit_code, ManifestError.exit_code})


class Supervisor:
    """Runs a command until it is told to stop; made and used in the main thread.

    Args:    command: it takes the options `LIFELINE` and `RESTARTS` besides.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._interrupts = 0
        # Signals wake whoever waits here: a lock that a handler would take could be held already.
        self._wakes, self._waker = os.pipe()
        self._lifeline, self._life = os.pipe()
        self.restarts = 0

    def run(self) -> int:
        """Supervise until the child ends for good; returns its exit code, 0 when asked to stop."""
        try:
            return self._run()
        finally:
            # One that comes while Python exits would end it, and hide the code.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)

    def _run(self) -> int:
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hand_on)
        backoff_s = _BACKOFF_MIN_S
        while True:
            started = time.monotonic()
            code = self._run_once()
            if self._stopping and code == -signal.SIGTERM:
                return 0  # it was asked to stop before it listened
            if code == 0 or code in _FINAL_CODES or self._stopping:
                return code if code >= 0 else 128 - code
            if time.monotonic() - started >= _STEADY_S:
                backoff_s = _BACKOFF_MIN_S
            self.restarts += 1
            _log.warning(
                "role_restarting",
                extra={"exit_code": code, "restarts": self.restarts, "after_s": backoff_s},
            )
            select.select([self._wakes], [], [], backoff_s)
            if self._stopping:
                return 0
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    def _run_once(self) -> int:
        # A session of its own: a Ctrl-C in the terminal reaches the child once, from here.
        self._child = subprocess.Popen(  # noqa: S603 - our own command line
            [*self._command, LIFELINE, str(self._lifeline), RESTARTS, str(self.restarts)],
            start_new_session=True,
            pass_fds=[self._lifeline],
        )
        if self._stopping:
            self._child.terminate()
        return self._child.wait()

    def _hand_on(self, number: int, _frame: FrameType | None) -> None:
        self._stopping = True
        self._interrupts += number == signal.SIGINT
        child = self._child
        if child is None or child.poll() is not None:
            return
        if self._interrupts > 1:
            child.kill()
        else:
            child.terminate()
