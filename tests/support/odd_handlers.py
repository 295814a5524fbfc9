"""Handlers that behave, and handlers that do not; processes import them from here."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from streams.handler_api import (
    Context,
    Denied,
    Event,
    Handler,
    Place,
    Retryable,
    Terminal,
    Unavailable,
)


def answer(event: Event, context: Context) -> dict[str, Any]:
    return {"action": event.payload["action"], "attempt": context.attempt_id}


async def answer_async(event: Event, context: Context) -> dict[str, Any]:
    await asyncio.sleep(0)
    return answer(event, context)


def where(_event: Event, _context: Context) -> list[Any]:
    return [os.getpid(), threading.current_thread().name]


def nothing(_event: Event, _context: Context) -> None:
    return None


# ---------------------------------------------------------------------- raising
def raise_error(_event: Event, _context: Context) -> NoReturn:
    raise ValueError("boom")


def raise_terminal(_event: Event, _context: Context) -> NoReturn:
    raise Terminal("gone")


def raise_retryable(_event: Event, _context: Context) -> NoReturn:
    raise Retryable("later", after_ms=7)


def raise_denied(_event: Event, _context: Context) -> NoReturn:
    raise Denied("no such token")


def raise_unavailable(_event: Event, _context: Context) -> NoReturn:
    raise Unavailable("503", after_ms=7)


def raise_exit(_event: Event, _context: Context) -> NoReturn:
    sys.exit(3)


def raise_interrupt(_event: Event, _context: Context) -> NoReturn:
    raise KeyboardInterrupt


class OddError(BaseException):
    """No Exception, and without a readable message."""

    def __str__(self) -> str:
        raise SystemExit(1)


def raise_odd(_event: Event, _context: Context) -> NoReturn:
    raise OddError


class NonsenseError(Retryable):
    @property
    def after_ms(self) -> int:
        raise OddError


def raise_nonsense(_event: Event, _context: Context) -> NoReturn:
    raise NonsenseError("later")


def raise_huge(_event: Event, _context: Context) -> NoReturn:
    raise ValueError("x" * 5_000_000)


def recurse(event: Event, context: Context) -> Any:
    return recurse(event, context)


# ---------------------------------------------------------------------- odd results
def return_object(_event: Event, _context: Context) -> object:
    return object()


def return_generator(_event: Event, _context: Context) -> Iterator[int]:
    return iter([1, 2])


def return_coroutine(event: Event, context: Context) -> Any:
    return answer_async(event, context)


def return_much(_event: Event, _context: Context) -> str:
    return "x" * 4_000


def return_itself(_event: Event, _context: Context) -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


# ---------------------------------------------------------------------- never returning
def wait_for_token(_event: Event, context: Context) -> str:
    context.cancelled.wait(60)
    return "seen"


def check_token(_event: Event, context: Context) -> None:
    while not context.cancelled.wait(0.01):
        pass
    context.cancelled.check()


async def finish_after_token_async(_event: Event, context: Context) -> str:
    reason = await context.cancelled
    await asyncio.sleep(0.05)
    return f"finished after {reason}"


async def wait_for_token_async(_event: Event, context: Context) -> str:
    return await context.cancelled


def never(_event: Event, _context: Context) -> NoReturn:
    while True:
        time.sleep(0.05)


async def never_async(_event: Event, _context: Context) -> NoReturn:
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue


def never_with_children(event: Event, _context: Context) -> NoReturn:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(event.payload["pid_file"]).write_text(f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(0.05)


# ---------------------------------------------------------------------- a process's end
# A process keeps the number that its socket had in the one that started it, however high.
_DESCRIPTORS_MAX = 65_536


def exit_now(_event: Event, _context: Context) -> NoReturn:
    os._exit(3)


def kill_itself(_event: Event, _context: Context) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def abort(_event: Event, _context: Context) -> NoReturn:
    os.abort()


def close_everything(_event: Event, _context: Context) -> None:
    os.closerange(3, _DESCRIPTORS_MAX)


def write_garbage(_event: Event, _context: Context) -> NoReturn:
    for descriptor in range(3, _DESCRIPTORS_MAX):
        try:
            os.write(descriptor, b"\xff\xff\xff\xff not a frame")
        except OSError:
            continue
    while True:
        time.sleep(0.05)


def hoard(_event: Event, _context: Context) -> int:
    return len(bytearray(600_000_000))


def hold_some(_event: Event, _context: Context) -> int:
    return os.getpid() + 0 * len(bytearray(b"x" * 120_000_000))


# ---------------------------------------------------------------------- besides
def log_a_line(_event: Event, context: Context) -> None:
    context.logger.warning("a_line_of_the_users")
    logging.getLogger("theirs").info("not told below the level")


def spend(_event: Event, context: Context) -> str:
    context.usage(cost_usd=0.25, tokens=100)
    context.usage(cost_usd=0.000_000_1)
    return "spent"


def spend_and_fail(_event: Event, context: Context) -> NoReturn:
    context.usage(tokens=7)
    raise ValueError("boom")


def yes(_event: Event, _context: Context) -> bool:
    return True


def number(_event: Event, _context: Context) -> int:
    return 1


def in_process(name: str) -> Handler:
    """A handler of this module that wants a process of its own."""
    function = globals()[name]
    return Handler(
        function,
        is_async=asyncio.iscoroutinefunction(function),
        takes_context=True,
        executor="process",
        place=Place(str(Path(__file__).parent), "tests.support.odd_handlers", name),
    )


def missing() -> Handler:
    """A handler whose module is gone in the process that shall run it."""
    return Handler(
        nothing,
        is_async=False,
        takes_context=True,
        executor="process",
        place=Place(str(Path(__file__).parent), "tests.support.no_such_module", "nothing"),
    )


# ---------------------------------------------------------------------- emitting
def emit_two(event: Event, context: Context) -> str:
    context.emit("orders", {"of": event.id})
    context.emit("chat", None, scope="session", scope_id="s1", dedupe_key="k")
    return "done"


def emit_and_fail(_event: Event, context: Context) -> NoReturn:
    context.emit("orders")
    raise ValueError("boom")
