"""One process that runs handlers, seen from the invoker: started, spoken to, and ended.

It is a new interpreter, never a fork: a fork would inherit our threads' locks and connections.  It
leads a process group of its own, so that ending it by force ends what its handler started, too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from typing import NamedTuple, Protocol

from streams.cancel_token import CancelReason
from streams.edge.executors.process_frames import (
    Began,
    Cancel,
    Ended,
    FrameError,
    Frames,
    Logged,
    Run,
    frame,
)
from streams.edge.executors.process_main import Options

__all__ = ["HandlerProcess", "ProcessEnd", "ProcessListener"]

_LOG = logging.getLogger("harn.handler")

# The new interpreter imports what this one can, wherever it was started.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from streams.edge.executors.process_main import main; main(sys.argv[2:])"
)
# What closes its socket is about to end; a handler that closed it by mistake is not.
_END_WAIT_S = 1.0


class ProcessEnd(NamedTuple):
    """How a process ended: its exit code, and the signal's name when one ended it."""

    exit_code: int
    signal_name: str | None


class ProcessListener(Protocol):
    """Hears what a process says; called on the event loop."""

    def began(self, process: HandlerProcess, call: int) -> None:
        """A call has begun."""
        ...

    def ended(self, process: HandlerProcess, said: Ended) -> None:
        """A call has ended, and the process can take another."""
        ...

    def gone(self, process: HandlerProcess, end: ProcessEnd) -> None:
        """The process has ended; said once, after everything else."""
        ...


class HandlerProcess(asyncio.Protocol):
    """A process, from its start until `ProcessListener.gone`."""

    def __init__(self, listener: ProcessListener, options: Options) -> None:
        """Start it.  Raises OSError when the system does not let us."""
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._is_ending = False
        self.runs = 0
        self.idle_since_s = 0.0
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = [json.dumps(sys.path), str(theirs.fileno())]
            arguments.append(json.dumps(dataclasses.asdict(options)))
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                    [sys.executable, "-c", _PROGRAM, *arguments],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._connecting = self._loop.create_task(self._connect(ours))
        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def run(self, run: Run) -> None:
        """Let it call a function; nothing else may run in it."""
        self.runs += 1
        self._send(frame(run))

    def cancel(self, call: int, reason: CancelReason, *, ends: bool) -> None:
        """Flip the token of a call; when it `ends` there, a coroutine is cancelled, too."""
        self._send(frame(Cancel(call, reason, ends)))

    def end(self) -> None:
        """Let it end, by ending the conversation; what runs in it is cut off."""
        self._is_ending = True
        if self._transport is not None:
            self._transport.close()

    def kill(self) -> None:
        """End it by force, with whatever it started."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self._process.kill()

    async def ended(self) -> None:
        """Return once it has ended and its listener was told."""
        await asyncio.shield(self._gone)

    # ------------------------------------------------------------------ the socket
    async def _connect(self, ours: socket.socket) -> None:
        await self._loop.create_connection(lambda: self, sock=ours)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what was said before there was a connection."""
        assert isinstance(transport, asyncio.Transport), "a socket's transport"
        self._transport = transport
        for data in self._unsent:
            transport.write(data)
        self._unsent.clear()
        if self._is_ending:
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Hear what the process says."""
        try:
            for said in self._frames.feed(data):
                self._hear(said)
        except FrameError as error:
            _LOG.error("handler_process_garbled", extra={"pid": self.pid, "reason": str(error)})
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a lost one is a lost one
        """The process ends, or has ended."""
        self._ending = self._loop.create_task(self._wait_for_end())

    def _send(self, data: bytes) -> None:
        if self._transport is None:
            self._unsent.append(data)
        else:
            self._transport.write(data)

    def _hear(self, said: object) -> None:
        match said:
            case Began(call=call):
                self._listener.began(self, call)
            case Ended():
                self._listener.ended(self, said)
            case Logged():
                _relay(said)
            case _:
                raise FrameError(f"{type(said).__name__}, which only we may say")

    async def _wait_for_end(self) -> None:
        try:
            code = await asyncio.to_thread(self._process.wait, _END_WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = await asyncio.to_thread(self._process.wait)
        self._gone.set_result(None)
        self._listener.gone(self, _end_of(code))


def _end_of(code: int) -> ProcessEnd:
    if code >= 0:
        return ProcessEnd(code, None)
    try:
        return ProcessEnd(code, signal.Signals(-code).name)
    except ValueError:  # a real-time signal has no name
        return ProcessEnd(code, f"signal {-code}")


def _relay(said: Logged) -> None:
    """Log here what a handler logged there."""
    logger = logging.getLogger(said.logger)
    if not logger.isEnabledFor(said.level):
        return
    standard = {
        "name": said.logger,
        "levelno": said.level,
        "levelname": logging.getLevelName(said.level),
        "msg": said.event,
    }
    logger.handle(logging.makeLogRecord({**said.fields, **standard}))
