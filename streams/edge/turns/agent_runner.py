"""Calls of agents, run to their outcome where handlers run: async ones on the loop, or on threads.

A call ends early when its turn is cancelled, when its time is up, or when whoever waits for it is
cancelled: its token flips, and a second later it is given up.  What it answers then is of no
account.  A few that never end are borne; then the process must start anew, and `failed` says so.

Source: DESIGN "An invocation"; `streams.edge.executors`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from streams.agent_api import Turn
from streams.core.turn.record import RESULT_CHARS_MAX
from streams.core.wire import TriggerEvent
from streams.edge.executors.call import Call
from streams.edge.executors.loop_watch import LoopWatch
from streams.edge.executors.outcome import INTERRUPTED, Outcome
from streams.edge.executors.runner import HandlerRunner
from streams.edge.executors.strays import STRAYS_MAX, Strays
from streams.edge.turns.agents import AgentFunction
from streams.edge.worker.stuck import LastLine
from streams.errors import InvokerStuck
from streams.handler_api import CancelToken, Context, Event, Handler
from streams.handler_emissions import Emissions
from streams.settings import Settings

__all__ = ["AgentObserver", "AgentRunner"]

_LOOP_LIMIT_S = 60.0
"""How long an agent may hold up the event loop: claims are renewed, and partitions kept, by it."""

_NO_EMISSIONS = "an agent cannot emit: its turn has no transaction to send it in"


class AgentObserver(Protocol):
    """Who is told how agents behave."""

    def strays(self, count: int) -> None:
        """So many calls were given up and run on all the same."""
        ...

    def loop_blocked(self) -> None:
        """An async agent held up the event loop for too long."""
        ...


class AgentRunner:
    """Runs agents; made and used inside one event loop.

    Args:    slots: calls that run at a time, at most.
             exit_now: ends a process whose loop does not turn any more.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        slots: int,
        observer: AgentObserver | None = None,
        exit_now: Callable[[int], object] = os._exit,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        strays = Strays(
            STRAYS_MAX,
            self._too_many_strays,
            (lambda _count: None) if observer is None else observer.strays,
        )
        settings = dataclasses.replace(settings, invoker_max_outstanding=slots)
        self._runner = HandlerRunner(settings, strays, logging.root.getEffectiveLevel())
        self._watch = LoopWatch(
            running=self._runner.on_loop.running,
            watched=lambda: len(self._runner.on_loop) > 0,
            limit_s=_LOOP_LIMIT_S,
            on_blocked=(lambda: None) if observer is None else observer.loop_blocked,
            on_stuck=LastLine(exit_now),
        )

    def start(self) -> None:
        """Begin to watch the loop."""
        self._watch.start()

    async def close(self) -> None:
        """Let threads end with what they do now."""
        self._watch.stop()
        await self._runner.close()

    async def call(
        self,
        function: AgentFunction,
        turn: Turn,
        *,
        cancelled: asyncio.Event,
        timeout_ms: int | None,
    ) -> Outcome:
        """Return what a call came to; its result is JSON, and a text is cut at 4,000 characters.

        Raises: asyncio.CancelledError when `cancelled` is set, or the caller is cancelled, first:
                the call has ended then, or was given up.
        """
        ended: asyncio.Future[Outcome] = self._loop.create_future()
        call = self._call_of(function, turn, timeout_ms, ended)
        self._runner.start(call)
        lost = asyncio.ensure_future(cancelled.wait())
        try:
            await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return ended.result()
            self._runner.cut(call, INTERRUPTED, "cancelled")
            await asyncio.wait({ended})
            raise asyncio.CancelledError
        except asyncio.CancelledError:
            if not ended.done():
                self._runner.cut(call, INTERRUPTED, "shutdown")
                await asyncio.wait({ended})  # so that the next worker does not meet it
            raise
        finally:
            lost.cancel()

    def _call_of(
        self,
        function: AgentFunction,
        turn: Turn,
        timeout_ms: int | None,
        ended: asyncio.Future[Outcome],
    ) -> Call:
        token = CancelToken()
        turn = dataclasses.replace(turn, cancelled=token)
        run: Callable[[Event, Context], Any]
        if function.is_async:

            async def run_async(_event: Event, _context: Context) -> Any:  # noqa: ANN401 - the user's
                return _bounded(await function.function(turn))

            run = run_async
        else:

            def run_plain(_event: Event, _context: Context) -> Any:  # noqa: ANN401 - the user's
                return _bounded(function.function(turn))

            run = run_plain
        return Call(
            handler=Handler(run, is_async=function.is_async, takes_context=True),
            event=cast("TriggerEvent", {}),  # an agent is given a turn, which `run` holds
            context=Context(
                attempt=turn.attempt,
                attempt_id=turn.idempotency_key,
                dispatch_id=turn.job_id,
                trigger_id=turn.agent_name,
                binding_key=f"agent:{turn.agent_name}",
                event_id=turn.record_id,
                cancelled=token,
                emissions=Emissions(refusal=_NO_EMISSIONS),
            ),
            purpose="handler",
            timeout_ms=timeout_ms,
            ended=lambda outcome: None if ended.done() else ended.set_result(outcome),
        )

    def _too_many_strays(self, count: int) -> None:
        if not self.failed.done():
            self.failed.set_exception(
                InvokerStuck(f"{count} agents do not end although their turns are over")
            )


def _bounded(value: Any) -> Any:  # noqa: ANN401 - the user's
    """Return what an agent answered as a text that a record holds.  Raises TypeError: no JSON."""
    if value is None or isinstance(value, bool):
        return value
    try:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        returned = type(value).__name__
        raise TypeError(
            f"the agent returned {returned}, expected a text, a JSON value or nothing: {error}"
        ) from error
    return text[:RESULT_CHARS_MAX].encode(errors="replace").decode()
