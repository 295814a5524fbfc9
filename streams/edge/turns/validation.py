"""The command that says whether a goal is reached: a program of its own, run to its end.

    passed        it ended with 0
    not passed    it ended otherwise, took too long, or could not be run; `output` says why

There is no shell: the command is split into words as a shell would, and the first is the program.
Whoever needs one says so: `sh -c 'make build && make test'`.

It runs in the worker's folder, in a process group of its own, without standard input.  The group
ends with the command, or before it when the time is up or the turn is cancelled: first by SIGTERM,
after two seconds by SIGKILL.  Of what it writes the end is kept.  Its environment is the worker's
without the variables of this application: they hold passwords.

Source: seed queue-driven-agent-dispatch, "The model"; SEMANTICS 8.1, 8.9.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Mapping
from typing import NamedTuple

from streams.settings import Settings

__all__ = [
    "OUTPUT_BYTES_MAX",
    "Validating",
    "Verdict",
    "not_passed",
    "run_validation",
    "validating_of",
]

OUTPUT_BYTES_MAX = 4_096
"""What is kept of the output while the command runs."""

_OUTPUT_CHARS_MAX = 1_024
_OURS = "HARN_"  # also what is no setting of this release
_TERM_S = 2.0
_DRAIN_S = 1.0


class Validating(NamedTuple):
    """How validations are run."""

    environment: Mapping[str, str]
    """Of commands."""
    commands: bool = True
    """Whether commands of goals are run at all."""
    timeout_s: float = 600.0


class Verdict(NamedTuple):
    """What a validation came to; `exit_code` is None when no command ran to its end."""

    passed: bool
    exit_code: int | None = None
    output: str = ""


def not_passed(why: str = "") -> Verdict:
    """Return the verdict over what could not be validated, or need not be."""
    return Verdict(passed=False, output=why[-_OUTPUT_CHARS_MAX:])


def validating_of(settings: Settings) -> Validating:
    """Return how a worker with these settings runs validations."""
    ours = {row.env for row in settings.describe()}
    return Validating(
        environment={
            name: value
            for name, value in os.environ.items()
            if name not in ours and not name.startswith(_OURS)
        },
        commands=settings.runs_validation_commands,
        timeout_s=settings.agent_validation_timeout_s,
    )


async def run_validation(
    command: str, validating: Validating, *, cancelled: asyncio.Event
) -> Verdict:
    """Run a command to its end.

    Raises: asyncio.CancelledError when `cancelled` is set first; nothing of it runs then.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        return not_passed(f"the command cannot be read: {error}")
    if not words:
        return not_passed("the command is empty")
    tail = _Tail()
    try:
        process = await _started(words, validating.environment, tail)
    except (OSError, ValueError) as error:
        await tail.close_within(_DRAIN_S)
        return not_passed(f"{words[0]!r} cannot be run: {getattr(error, 'strerror', error)}")
    ended = asyncio.ensure_future(process.wait())
    interrupted = asyncio.ensure_future(cancelled.wait())
    try:
        await asyncio.wait(
            {ended, interrupted},
            timeout=validating.timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        in_time = ended.done()
    finally:
        interrupted.cancel()
        await _end_group(process.pid, ended)
        await tail.close_within(_DRAIN_S)
    if cancelled.is_set() and not in_time:
        raise asyncio.CancelledError
    output = tail.kept.decode(errors="replace").replace("\0", "\ufffd").strip()
    output = output[-_OUTPUT_CHARS_MAX:]
    if not in_time:
        return not_passed(f"{output}\nit took longer than {validating.timeout_s:g} s".strip())
    return Verdict(ended.result() == 0, ended.result(), output)


class _Tail(asyncio.Protocol):
    """Reads a pipe to its end, and keeps the last bytes."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self._transport: asyncio.BaseTransport | None = None
        self._ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.kept += data
        del self.kept[:-OUTPUT_BYTES_MAX]

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # what came before it counts
        self._ended.set()

    async def close_within(self, seconds: float) -> None:
        """Wait for the end, which comes unless something of no group of ours holds the pipe."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        assert self._transport is not None, "it is connected before the command starts"
        self._transport.close()
        await self._ended.wait()


async def _started(
    words: list[str], environment: Mapping[str, str], tail: _Tail
) -> asyncio.subprocess.Process:
    """Start a program whose output `tail` reads.  Raises OSError, ValueError."""
    source, sink = os.pipe()
    try:
        pipe = os.fdopen(source, "rb", buffering=0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: tail, pipe)
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    finally:
        os.close(sink)


async def _end_group(group: int, ended: asyncio.Future[int]) -> None:
    """End all processes of a group; returns once its first one has ended."""
    if not ended.done():
        _signal(group, signal.SIGTERM)
        await asyncio.wait({ended}, timeout=_TERM_S)
    # Also what the command has left behind: it holds the pipe, and nobody waits for it.
    _signal(group, signal.SIGKILL)
    await asyncio.wait({ended})


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
