"""Runs functions to their outcome, each where it belongs, and ends them before their own end.

| who ends it | its token says | then, for a second | after that |
|---|---|---|---|
| its timeout | `timeout` | it may clean up | outcome `timeout` |
| a cancel request | `cancelled` | it may clean up | outcome `cancelled` |
| the process stops | `shutdown` at once | it goes on for the drain time | `interrupted` |

On the loop it is cancelled, in a process it is told and then killed; on a thread, and where it
swallows its cancellation, it is left alone as a stray.  What it answers from then on is of no
account.

The user's code may raise anything at all; here is the wall that it cannot pass.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from streams.cancel_token import CancelReason
from streams.edge.executors.call import Call
from streams.edge.executors.on_loop import LoopExecutor
from streams.edge.executors.on_processes import ProcessExecutor
from streams.edge.executors.on_threads import ThreadExecutor
from streams.edge.executors.outcome import Outcome, timed_out, with_word_of
from streams.edge.executors.strays import Strays
from streams.settings import Settings

__all__ = ["GRACE_S", "HandlerRunner"]

GRACE_S = 1.0
"""What a function that shall end gets for its clean-up."""


class _Executor(Protocol):
    """A place where functions run."""

    def start(self, call: Call) -> None:
        """Run a call."""
        ...

    def interrupt(self, call: Call) -> None:
        """Ask a call to end now; its token has flipped."""
        ...

    def abandon(self, call: Call) -> None:
        """Do what can be done about a call that does not end."""
        ...


class HandlerRunner:
    """The functions that run for this process.  Made and used inside one event loop.

    Args:    strays: where those that do not end are counted.  log_level: of processes.
    """

    def __init__(self, settings: Settings, strays: Strays, log_level: int) -> None:
        self._loop = asyncio.get_running_loop()
        bytes_max = settings.max_record_bytes // 3
        threads_max = settings.invoker_max_outstanding
        self.on_loop = LoopExecutor(bytes_max, self._end, strays)
        self._on_threads = ThreadExecutor(threads_max, bytes_max, self._end, strays)
        self.on_processes = ProcessExecutor(
            processes_max=settings.invoker_processes,
            memory_bytes_max=settings.invoker_process_max_bytes,
            result_bytes_max=bytes_max,
            log_level=log_level,
            on_began=self._began,
            on_end=self._end,
        )
        self._executors: dict[str, _Executor] = {
            "async": self.on_loop,
            "thread": self._on_threads,
            "process": self.on_processes,
        }

    def start(self, call: Call) -> None:
        """Run a call; `call.ended` is told its outcome, exactly once."""
        where = call.handler.runs_in
        self._executors[where].start(call)
        if where != "process":
            self._began(call)

    def warn(self, call: Call) -> None:
        """Tell a call that the process stops; it may go on."""
        call.context.cancelled.flip("shutdown")
        if call.handler.runs_in == "process":
            self.on_processes.warn(call)

    def cut(self, call: Call, verdict: Outcome, reason: CancelReason) -> None:
        """End a call with `verdict`, within a second.  Only the first one counts."""
        if call.is_over or call.verdict is not None:
            return
        call.verdict = verdict
        call.context.cancelled.flip(reason)
        self._set_timer(call, self._loop.call_later(GRACE_S, self._give_up, call))
        self._executors[call.handler.runs_in].interrupt(call)

    async def close(self) -> None:
        """Let threads end with what they do now, and end processes."""
        self._on_threads.close()
        await self.on_processes.close()

    def _began(self, call: Call) -> None:
        """Let its timeout begin."""
        if call.timeout_ms is not None and call.verdict is None:
            call.context.cancelled.expires_in(call.timeout_ms)
            timer = self._loop.call_later(call.timeout_ms / 1_000, self._time_is_up, call)
            self._set_timer(call, timer)

    def _time_is_up(self, call: Call) -> None:
        assert call.timeout_ms is not None, "only a timeout sets this timer"
        self.cut(call, timed_out(call.timeout_ms), "timeout")

    def _is_late(self, call: Call) -> bool:
        """Whether an async function ended after its timeout, whose timer it held up by blocking.

        Other functions end elsewhere, and are not to blame for what holds up the loop.
        """
        timer = call.timer
        if timer is None or call.handler.runs_in != "async":
            return False
        return timer.when() < self._loop.time()

    def _give_up(self, call: Call) -> None:
        assert call.verdict is not None, "a call is given up because of a verdict"
        self._executors[call.handler.runs_in].abandon(call)
        self._end(call, call.verdict)

    def _set_timer(self, call: Call, timer: asyncio.TimerHandle) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.timer = timer

    def _end(self, call: Call, outcome: Outcome) -> None:
        """Tell the outcome of a call that has not been told yet."""
        if call.is_over:
            return
        call.is_over = True
        if call.verdict is None and self._is_late(call):
            assert call.timeout_ms is not None, "only what has a timeout is late"
            call.verdict = timed_out(call.timeout_ms)
        if call.timer is not None:
            call.timer.cancel()
        said = with_word_of(call.context, outcome)
        call.ended(said if call.verdict is None else call.verdict._replace(usage=said.usage))
