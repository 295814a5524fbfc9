"""A worker of turns on SQLite or PostgreSQL: so many slots, each a thread that sees turns through.

    slot ─ take ─ guard ─ claim ─▸ body, on the event loop ─▸ end written ─ ack ─▸ take …

A heartbeat is written every 30 s, also while turns run.  On a stop the slots take nothing more;
what runs has the drain time to end, and is given back then.

Source: seed queue-driven-agent-dispatch, "Placement", "Fleet visibility"; SEMANTICS 8.8, 8.9.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from streams.core.turn.fleet import HEARTBEAT_MS, SESSIONS_SHOWN_MAX
from streams.edge.turns.body import Bodies
from streams.edge.turns.delivery import RENEW_EVERY_S, Deliveries, Ended, Lease, Outcome
from streams.edge.turns.opening import open_turns
from streams.edge.turns.sql_claimed import SqlClaimed
from streams.edge.turns.sql_intake import SqlIntake
from streams.edge.turns.sql_retention import SqlRetention
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.turn_store import Claimant, FleetWorker, TurnRecord
from streams.errors import TaskQueueUnavailable
from streams.observe import logs
from streams.settings import Settings

__all__ = ["SqlWorker", "TurnObserver", "serve"]

_LOG = logs.logger(__name__)

_GIVE_BACK_S = 10.0
"""What giving back may take after the drain time: an agent has a second to end."""


class TurnObserver(Protocol):
    """Who is told what became of turns."""

    def turn_ended(self, outcome: str) -> None:
        """A turn ended, or was given back."""
        ...


async def serve(
    settings: Settings,
    bodies: Bodies,
    *,
    slots: int,
    worker_id: str,
    stop: asyncio.Event,
    observer: TurnObserver,
    on_ready: Callable[[], object] = lambda: None,
    heartbeat_every_s: float = HEARTBEAT_MS / 1_000,
) -> None:
    """Run turns until `stop` is set; then let those that run end, or give them back.

    Args:   slots: turns that run at once.  worker_id: names the worker in the fleet.
            on_ready: called once turns can be taken.
    Raises: TaskQueueUnavailable, when the database cannot be had at the start, or is unusable.
    """
    token = f"{socket.gethostname()}:{os.getpid()}:agent-dispatch"
    turns = await asyncio.to_thread(open_turns, settings, consumer=token)
    worker = SqlWorker(turns, bodies, slots=slots, worker_id=worker_id, observer=observer)
    retention = SqlRetention(turns.store, settings.agent_job_retention_ms)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await worker.start(heartbeat_every_s)
        retention.start()
        on_ready()
        ended = {stopping, worker.failed, retention.failed}
        done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        stopping.cancel()
        await retention.stop()
        await worker.stop(settings.drain_ms / 1_000)
        await asyncio.to_thread(turns.close)


class SqlWorker:
    """A worker on a database that is open; made and used inside one event loop."""

    def __init__(
        self,
        turns: SqlTurns,
        bodies: Bodies,
        *,
        slots: int,
        worker_id: str,
        observer: TurnObserver,
        renew_every_s: float = RENEW_EVERY_S,
    ) -> None:
        self._turns = turns
        self._bodies = bodies
        self._slots = slots
        self._worker_id = worker_id
        self._host = socket.gethostname()
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._stopping = threading.Event()
        self._deliveries = Deliveries(
            turns,
            Claimant(f"{self._host}:{os.getpid()}:agent-dispatch", self._host),
            self._run,
            renew_every_s=renew_every_s,
        )
        self._intake = SqlIntake(self._deliveries.take, self._stopping)
        self._running: dict[SqlClaimed, asyncio.Task[object]] = {}
        self._ended = [asyncio.Event() for _ in range(slots)]
        self._beating: asyncio.Task[None] | None = None

    async def start(self, heartbeat_every_s: float) -> None:
        """Say that the worker is there, and begin to take turns.  Raises TaskQueueUnavailable."""
        fleet = await asyncio.to_thread(self._turns.store.workers)
        for each in fleet:
            if each.worker_id == self._worker_id:
                extra = {"worker_id": each.worker_id, "token": f"a worker of {each.host}"}
                _LOG.warning("turn_worker_id_taken", extra=extra)
        await self._beat()
        self._beating = asyncio.create_task(self._beat_on(heartbeat_every_s), name="heartbeats")
        for number, ended in enumerate(self._ended):
            # Daemons: an agent that never returns must not keep the process from ending.
            thread = threading.Thread(
                target=self._work, args=(ended,), name=f"turns-{number}", daemon=True
            )
            thread.start()

    async def stop(self, drain_s: float) -> None:
        """Take nothing more, and give back what has not ended within the drain time."""
        self._stopping.set()
        if self._beating is None:
            return
        if not await self._idle_within(drain_s):
            for claimed, task in list(self._running.items()):
                claimed.cancelled.set()
                task.cancel()
            await self._idle_within(_GIVE_BACK_S)
        self._beating.cancel()
        await asyncio.wait([self._beating])
        self._beating = None
        try:
            await asyncio.to_thread(self._turns.store.leave, self._worker_id)
        except TaskQueueUnavailable as error:
            _LOG.warning("turn_worker_not_heard", extra={"reason": str(error)})

    async def _idle_within(self, seconds: float) -> bool:
        """Whether all slots end in time."""
        try:
            async with asyncio.timeout(seconds):
                for each in self._ended:
                    await each.wait()
        except TimeoutError:
            return False
        return True

    # ------------------------------------------------------------------ a slot's thread
    def _work(self, ended: asyncio.Event) -> None:
        try:
            while (taken := self._intake.next()) is not None:
                try:
                    outcome = self._deliveries.see_through(taken)
                except TaskQueueUnavailable as error:
                    if not error.retryable:
                        raise
                    _LOG.warning("turn_interrupted", extra={"reason": str(error)})
                    outcome = Outcome.WAITING
                except asyncio.CancelledError:
                    outcome = Outcome.WAITING
                self._soon(self._observer.turn_ended, outcome.value)
        except BaseException as error:  # noqa: BLE001 - whatever ends a slot ends the worker
            self._soon(self._fail, error)
        finally:
            self._soon(ended.set)

    def _soon(self, tell: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it who would be told
            self._loop.call_soon_threadsafe(tell, *arguments)

    def _run(self, record: TurnRecord, lease: Lease) -> Ended:
        """Run a turn on the event loop, and wait for it."""
        future = asyncio.run_coroutine_threadsafe(self._executed(record, lease), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            # Not its cousin, which is an Exception: the turn has not failed.
            raise asyncio.CancelledError from None

    # ------------------------------------------------------------------ the event loop
    async def _executed(self, record: TurnRecord, lease: Lease) -> Ended:
        claimed = SqlClaimed(self._turns, record, lease)
        task = asyncio.current_task()
        assert task is not None, "it runs as a task"
        self._running[claimed] = task
        try:
            if self._stopping.is_set():
                raise asyncio.CancelledError
            agent_name = lease.envelope.agent_name or record.spec.get("agent_name", "")
            return claimed.ended(await self._bodies.body_for(record.kind, agent_name)(claimed))
        finally:
            del self._running[claimed]

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    async def _beat_on(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._beat()
            except TaskQueueUnavailable as error:
                _LOG.warning("turn_worker_not_heard", extra={"reason": str(error)})

    async def _beat(self) -> None:
        worker = FleetWorker(
            worker_id=self._worker_id,
            host=self._host,
            capacity=self._slots,
            active_sessions=tuple(
                sorted(each.session_id for each in self._running)[:SESSIONS_SHOWN_MAX]
            ),
            queue_backend=self._turns.queue.backend,
        )
        await asyncio.to_thread(self._turns.store.beat, worker)
