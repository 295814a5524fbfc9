"""Functions in processes of their own: what computes for long, or may take its process down.

Processes are started when there is work, end after a minute without, and are shared by triggers as
the invoker's slots are.  One that dies takes only its own call with it; one whose function does not
end is killed; one that has held much memory, or served long, is replaced.

Source: DESIGN "Roles", "Backpressure".
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os

from streams.edge.executors.call import Call, OnBegan, OnEnd
from streams.edge.executors.outcome import INTERRUPTED, Outcome, died, unstarted
from streams.edge.executors.process import HandlerProcess, ProcessEnd
from streams.edge.executors.process_frames import Ended, Run
from streams.edge.executors.process_main import Options
from streams.edge.executors.slots import Slots
from streams.observe import logs

__all__ = ["IDLE_S", "RUNS_MAX", "ProcessExecutor"]

_LOG = logs.logger(__name__)

IDLE_S = 60.0
"""A process without work is kept so long: starting one costs a fifth of a second of a core."""

RUNS_MAX = 10_000
"""A process that has served so many calls is replaced: what its functions leak is bounded."""

_END_WAIT_S = 3.0
_NO_PLACE = "a handler given as a function has no place to find it in: name it in a manifest"


class ProcessExecutor:
    """Runs calls in processes.  Used on the event loop that it is made in.

    Args:    processes_max: at once, 0 means one a core.  memory_bytes_max: of each, 0 is no bound.
             on_began: told when a call begins, which may be long after its `start`.
    """

    def __init__(
        self,
        *,
        processes_max: int,
        memory_bytes_max: int,
        result_bytes_max: int,
        log_level: int,
        on_began: OnBegan,
        on_end: OnEnd,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._options = Options(log_level=log_level, memory_bytes_max=memory_bytes_max)
        self._result_bytes_max = result_bytes_max
        self._on_began = on_began
        self._on_end = on_end
        self._slots: Slots[Call] = Slots(processes_max or os.cpu_count() or 1)
        self._numbers = itertools.count(1)
        self._waiting: set[Call] = set()
        self._running: dict[HandlerProcess, tuple[int, Call]] = {}
        self._place: dict[Call, HandlerProcess] = {}
        self._idle: list[HandlerProcess] = []  # the last one is used first
        self._processes: set[HandlerProcess] = set()
        self._reaping: asyncio.TimerHandle | None = None

    @property
    def pids(self) -> list[int]:
        """Return the ids of the processes there are."""
        return sorted(process.pid for process in self._processes)

    def start(self, call: Call) -> None:
        """Run it as soon as its trigger may have a process."""
        if call.handler.place is None:
            self._loop.call_soon(self._on_end, call, unstarted(_NO_PLACE))
        elif self._slots.offer(call.context.trigger_id, call):
            self._begin(call)
        else:
            self._waiting.add(call)

    def interrupt(self, call: Call) -> None:
        """Ask it to end: its token flips there, and a coroutine is cancelled."""
        if call in self._waiting:
            self._waiting.discard(call)
            self._slots.withdraw({call})
            self._loop.call_soon(self._on_end, call, INTERRUPTED)
            return
        self._tell(call, ends=True)

    def warn(self, call: Call) -> None:
        """Flip its token there, and let it go on."""
        self._tell(call, ends=False)

    def _tell(self, call: Call, *, ends: bool) -> None:
        process = self._place.get(call)
        if process is not None:
            number, _ = self._running[process]
            process.cancel(number, call.context.cancelled.reason or "cancelled", ends=ends)

    def abandon(self, call: Call) -> None:
        """End its process by force."""
        process = self._place.get(call)
        if process is not None:
            process.kill()

    async def close(self) -> None:
        """End every process; returns when all have, by force after three seconds."""
        if self._reaping is not None:
            self._reaping.cancel()
        ending = [asyncio.ensure_future(process.ended()) for process in self._processes]
        for process in self._processes:
            process.end()
        if not ending:
            return
        _, late = await asyncio.wait(ending, timeout=_END_WAIT_S)
        for process in self._processes:
            process.kill()
        if late:
            await asyncio.wait(late)

    # ------------------------------------------------------------------ calls
    def _begin(self, call: Call) -> None:
        place = call.handler.place
        assert place is not None, "start has asked for it"
        try:
            process = self._idle.pop() if self._idle else self._new_process()
        except OSError as error:
            self._loop.call_soon(self._end, call, unstarted(f"no process can be started: {error}"))
            return
        number = next(self._numbers)
        self._running[process] = number, call
        self._place[call] = process
        run = Run(
            call=number,
            place=place,
            purpose=call.purpose,
            event=call.event,
            context=_fields_of(call),
            result_bytes_max=self._result_bytes_max,
            timeout_ms=call.timeout_ms,
        )
        process.run(run)
        if call.context.cancelled:  # it was warned while it waited
            self.warn(call)

    def _new_process(self) -> HandlerProcess:
        process = HandlerProcess(self, self._options)
        self._processes.add(process)
        return process

    def _end(self, call: Call, outcome: Outcome) -> None:
        """Free its slot, tell what it came to, and let the next one begin."""
        self._slots.ended(call.context.trigger_id)
        self._on_end(call, outcome)
        self._loop.call_soon(self._begin_waiting)

    def _begin_waiting(self) -> None:
        while (call := self._slots.next()) is not None:
            self._waiting.discard(call)
            self._begin(call)

    # ------------------------------------------------------------------ what processes say
    def began(self, process: HandlerProcess, call: int) -> None:
        """A call has begun."""
        number, running = self._running.get(process, (0, None))
        if running is not None and number == call:
            running.begun = True
            self._on_began(running)

    def ended(self, process: HandlerProcess, said: Ended) -> None:
        """A call has ended."""
        number, call = self._running.get(process, (0, None))
        if call is None or number != said.call:
            return
        del self._running[process], self._place[call]
        bound = self._options.memory_bytes_max
        if process.runs >= RUNS_MAX or (bound and said.memory_bytes > bound // 2):
            process.end()
        else:
            process.idle_since_s = self._loop.time()
            self._idle.append(process)
            self._reap_soon()
        self._end(call, said.outcome)

    def gone(self, process: HandlerProcess, end: ProcessEnd) -> None:
        """A process has ended."""
        self._processes.discard(process)
        if process in self._idle:
            self._idle.remove(process)
        _, call = self._running.pop(process, (0, None))
        if call is None:
            return
        del self._place[call]
        if call.begun:
            self._end(call, died(*end))
        else:
            reason = f"its process ended before it began, exit code {end.exit_code}"
            self._end(call, unstarted(reason))

    # ------------------------------------------------------------------ idle ones
    def _reap_soon(self) -> None:
        if self._reaping is None:
            self._reaping = self._loop.call_later(IDLE_S, self._reap)

    def _reap(self) -> None:
        self._reaping = None
        born_s = self._loop.time() - IDLE_S
        idle = [process for process in self._idle if process.idle_since_s <= born_s]
        for process in idle:
            self._idle.remove(process)
            process.end()
        if idle:
            _LOG.info("handler_processes_reaped", extra={"processes": len(idle)})
        if self._idle:
            oldest_s = min(process.idle_since_s for process in self._idle)
            self._reaping = self._loop.call_at(oldest_s + IDLE_S, self._reap)


def _fields_of(call: Call) -> dict[str, object]:
    """Return what of the context is text and numbers."""
    values = {
        each.name: getattr(call.context, each.name) for each in dataclasses.fields(call.context)
    }
    return {name: value for name, value in values.items() if isinstance(value, str | int | None)}
