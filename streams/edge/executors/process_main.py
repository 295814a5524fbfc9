"""A process that runs handlers for an invoker, one at a time: started by `processes`, ended by it.

The main thread calls functions; another listens, flips tokens, and ends the process as soon as the
invoker is gone.  Log records travel to the invoker and appear in its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from streams.edge.executors.call import Call, failure, run_here
from streams.edge.executors.outcome import Outcome, answered, with_word_of
from streams.edge.executors.process_frames import Began, Cancel, Ended, Frames, Logged, Run, frame
from streams.edge.handler_modules import handler_of, import_export
from streams.handler_api import CancelToken, Context, Event, Handler, Place
from streams.handler_emissions import Emissions

__all__ = ["Options", "main"]

_READ_BYTES = 262_144
_FIELD_CHARS_MAX = 8_192
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How the process is set up.  `memory_bytes_max` 0 sets no bound."""

    log_level: int
    memory_bytes_max: int


def main(arguments: Sequence[str]) -> None:
    """Serve the socket whose number comes first, set up by the JSON text that comes second."""
    descriptor, text = arguments
    options = Options(**json.loads(text))
    # A Ctrl-C in the terminal is the invoker's to hear: it tells us what shall end, and when.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if options.memory_bytes_max:
        _bound_memory(options.memory_bytes_max)
    _Process(socket.socket(fileno=int(descriptor)), options).serve()


def _bound_memory(bytes_max: int) -> None:
    """Let allocations beyond the bound fail with MemoryError, where the system can."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class _Process:
    """Both threads' state."""

    def __init__(self, stream: socket.socket, options: Options) -> None:
        self._socket = stream
        self._sending = threading.Lock()
        self._runs: SimpleQueue[Run] = SimpleQueue()
        self._current: tuple[int, Callable[[Cancel], None]] | None = None
        self._cancelling = threading.Lock()
        self._cancels: dict[int, Cancel] = {}
        logging.root.handlers[:] = [_ToInvoker(self._send)]
        logging.root.setLevel(options.log_level)

    def serve(self) -> None:
        """Run what comes, for ever; the listener ends the process."""
        threading.Thread(target=self._listen, name="invoker", daemon=True).start()
        while True:
            self._run(self._runs.get())

    def _listen(self) -> None:
        frames = Frames()
        code = 1
        try:
            while data := self._socket.recv(_READ_BYTES):
                for said in frames.feed(data):
                    if isinstance(said, Run):
                        self._runs.put(said)
                    elif isinstance(said, Cancel):
                        self._cancel(said)
            code = 0
        except BaseException:  # noqa: BLE001 - this thread ends the process, whatever ended it
            traceback.print_exc()
        finally:
            os._exit(code)  # nobody is left who would take an outcome

    def _send(self, said: Began | Ended | Logged) -> None:
        data = frame(said)
        with self._sending:
            self._socket.sendall(data)

    # ------------------------------------------------------------------ calls
    def _run(self, run: Run) -> None:
        token = CancelToken()
        emissions = Emissions.of(run.event, run.purpose)
        context = Context(**run.context, cancelled=token, emissions=emissions)
        call = Call(
            handler=_NO_HANDLER,
            event=run.event,
            context=context,
            purpose=run.purpose,
            timeout_ms=run.timeout_ms,
            ended=_ignore,
        )
        try:
            call.handler = _resolve(run.place)
        except BaseException as error:  # noqa: BLE001 - a user's module may raise anything
            outcome = failure(call, error)
        else:
            self._send(Began(run.call))
            token.expires_in(run.timeout_ms)
            outcome = self._outcome_of(run, call)
        self._send(Ended(run.call, with_word_of(context, outcome), _memory_bytes()))

    def _outcome_of(self, run: Run, call: Call) -> Outcome:
        if call.handler.is_async:
            try:
                return asyncio.run(self._await(run, call))
            except BaseException as error:  # noqa: BLE001 - the loop itself was ended by the user's code
                return failure(call, error)
        with self._cancellable(run.call, lambda said: call.context.cancelled.flip(said.reason)):
            return run_here(call, run.result_bytes_max)

    async def _await(self, run: Run, call: Call) -> Outcome:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"

        def cancel(said: Cancel) -> None:
            call.context.cancelled.flip(said.reason)
            if said.ends:
                loop.call_soon_threadsafe(task.cancel)

        with self._cancellable(run.call, cancel):
            try:
                value = await call.handler(Event(call.event), call.context)
                return answered(call.purpose, value, run.result_bytes_max)
            except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
                return failure(call, error)

    @contextlib.contextmanager
    def _cancellable(self, number: int, cancel: Callable[[Cancel], None]) -> Iterator[None]:
        """Note what runs, and what ends it; one that was cancelled before it began ends at once."""
        with self._cancelling:
            self._current = number, cancel
            said = self._cancels.get(number)
            if said is not None:
                cancel(said)
        try:
            yield
        finally:
            with self._cancelling:
                self._current = None
                self._cancels.clear()

    def _cancel(self, said: Cancel) -> None:
        """Cancel a call: now if it runs, as soon as it begins if it does not yet."""
        with self._cancelling:
            self._cancels[said.call] = said
            if self._current is not None and self._current[0] == said.call:
                self._current[1](said)


class _ToInvoker(logging.Handler):
    """Sends log records to the invoker."""

    def __init__(self, send: Callable[[Logged], None]) -> None:
        super().__init__()
        self._to_invoker = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record; its traceback travels as the field `traceback`."""
        try:
            fields = {
                name: str(value)[:_FIELD_CHARS_MAX]
                for name, value in record.__dict__.items()
                if name not in _STANDARD
            }
            if record.exc_info:
                text = logging.Formatter().formatException(record.exc_info)
                fields["traceback"] = text[-_FIELD_CHARS_MAX:]
            event = record.getMessage()[:_FIELD_CHARS_MAX]
            self._to_invoker(Logged(record.name, record.levelno, event, fields))
        except Exception:  # noqa: BLE001 - a line that cannot be said must not end a handler
            self.handleError(record)


@functools.lru_cache(maxsize=1_024)
def _resolve(place: Place) -> Handler:
    module = import_export(place.module, Path(place.base_dir))
    return handler_of(getattr(module, place.function))


def _memory_bytes() -> int:
    """Return the most memory that this process ever held.

    Where there is /proc it is asked first: what `getrusage` says begins with what our parent held.
    """
    try:
        status = Path("/proc/self/status").read_text("ascii")
        return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1_024
    except (OSError, IndexError, ValueError):
        unit = 1 if sys.platform == "darwin" else 1_024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _ignore(_outcome: Outcome) -> None:
    """Nobody here needs to be told: the outcome is sent."""


def _nothing(_event: Any) -> None:  # noqa: ANN401 - never called
    """Stand in until the function is found."""


_NO_HANDLER = Handler(_nothing, is_async=False)
