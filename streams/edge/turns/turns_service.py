"""The turn API of a process: its routes for ingest's listener, and what they need of the carrier.

Source: DESIGN "Roles".
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import NamedTuple

from aiohttp import web

from streams.codec import Codec
from streams.edge.ingest.answer import Door, IngestObserver
from streams.edge.ingest.origins import Origins
from streams.edge.publisher import Publisher
from streams.edge.turns.agent_bodies import AgentBodies
from streams.edge.turns.enqueuer import Enqueuer
from streams.edge.turns.inline import BACKEND as INLINE
from streams.edge.turns.inline import InlineTurns, inline_token
from streams.edge.turns.inline_kafka import KafkaInlineRecords
from streams.edge.turns.inline_records import InlineRecords
from streams.edge.turns.inline_sql import SqlInlineRecords
from streams.edge.turns.kafka_ledger import KafkaLedger
from streams.edge.turns.kafka_retention import KafkaRetention
from streams.edge.turns.opening import open_turns
from streams.edge.turns.sql_ledger import SqlLedger
from streams.edge.turns.sql_retention import SqlRetention
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.sql_worker import TurnObserver
from streams.edge.turns.turn_ledger import TurnLedger
from streams.edge.turns.turn_view import TurnView
from streams.edge.turns.turns_api import TurnsApi
from streams.errors import TaskQueueUnavailable
from streams.observe import logs
from streams.observe.turn_metrics import TurnMetrics
from streams.settings import Settings

__all__ = ["Inline", "TurnsService"]

_LOG = logs.logger(__name__)

_IN_FLIGHT_MAX = 64
_MEASURE_EVERY_S = 30.0


class Inline(NamedTuple):
    """What runs turns in this process, and is told what becomes of them."""

    bodies: AgentBodies
    observer: TurnObserver


class TurnsService:
    """Answers for goals, sessions and tasks; an `EdgeService`.

    Args:    publisher: started and stopped by whoever made it, around this service.
             inline: what runs turns here; without it they are enqueued.
    Raises:  TaskQueueUnavailable, when turns are carried by a database that cannot be had.
    """

    name = "turns"

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        codec: Codec,
        *,
        inline: Inline | None = None,
        observer: IngestObserver | None = None,
        metrics: TurnMetrics | None = None,
        measure_every_s: float = _MEASURE_EVERY_S,
    ) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._view: TurnView | None = None
        self._sql: SqlTurns | None = None
        self._retention: SqlRetention | KafkaRetention | None = None
        self._drain_s = settings.drain_ms / 1_000
        self._bodies = None if inline is None else inline.bodies
        token, turns_max = inline_token(), settings.agent_inline_turns_max
        records: InlineRecords
        if settings.turn_queue_backend == "kafka":
            self._view = TurnView(settings, codec)
            ledger = KafkaLedger(settings, publisher, codec, self._view)
            records = KafkaInlineRecords(
                ledger,
                token=token,
                turns_max=turns_max,
                claim_ttl_ms=settings.claim_ttl_s * 1_000,
            )
            if inline is not None:  # else the owners of partitions forget
                self._retention = KafkaRetention(
                    ledger, self._view, codec, settings.agent_job_retention_ms
                )
        else:
            # Nothing else works yet, so that nobody waits for it.
            self._sql = open_turns(settings, consumer=f"{socket.gethostname()}:{os.getpid()}:api")
            self._retention = SqlRetention(self._sql.store, settings.agent_job_retention_ms)
            ledger = SqlLedger(self._sql)
            records = SqlInlineRecords(self._sql, token=token, turns_max=turns_max)
        if self._retention is not None:
            self._retention.failed.add_done_callback(self._fails)
        self._inline: InlineTurns | None = None
        self._beginning: asyncio.Task[None] | None = None
        if inline is not None:
            self._inline = InlineTurns(
                ledger,
                records,
                inline.bodies,
                token=token,
                turns_max=turns_max,
                observer=inline.observer,
            )
            inline.bodies.failed.add_done_callback(self._fails)
            self._inline.failed.add_done_callback(self._fails)
        self._ledger: TurnLedger = ledger
        self._metrics = metrics
        self._measure_every_s = measure_every_s
        self._measuring: asyncio.Task[None] | None = None
        self._api = TurnsApi(
            ledger,
            Enqueuer(ledger, inline=self._inline),
            Door(in_flight_max=_IN_FLIGHT_MAX, observer=observer),
            Origins((settings.http_allowed_origins or "").split(",")),
            body_bytes_max=settings.http_max_body_bytes,
        )

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for a listener that starts after this service was made."""
        return self._api.routes()

    async def start(self) -> None:
        """Begin to follow what stands in the topics; until it is read, answers are 503."""
        if self._view is not None:
            self._view.start()
        if self._retention is not None:
            self._retention.start()
        if self._bodies is not None:
            self._bodies.start()
            self._beginning = asyncio.create_task(self._begin(), name="inline turns")
            self._beginning.add_done_callback(self._fails)
        if self._metrics is not None:
            self._measuring = asyncio.create_task(self._measure(self._metrics), name="turns")
            self._measuring.add_done_callback(self._fails)

    async def stop(self) -> None:
        """Let turns that run here end, and let go of the carrier; idempotent."""
        for task in (self._measuring, self._beginning):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._inline is not None:
            await self._inline.stop(self._drain_s)
        if self._bodies is not None:
            await self._bodies.close()
        if self._retention is not None:
            await self._retention.stop()
        if self._view is not None:
            await self._view.stop()
        if self._sql is not None:
            await asyncio.to_thread(self._sql.close)

    async def _begin(self) -> None:
        """Look after inline turns, once it is known what there is."""
        assert self._inline is not None, "only who runs turns looks after them"
        if self._view is not None:
            await self._view.caught_up.wait()
        await self._inline.start()

    async def _measure(self, metrics: TurnMetrics) -> None:
        """Measure now and then, until cancelled; nobody depends on it."""
        ledger, inline = self._ledger, self._inline
        backend = ledger.backend if inline is None else INLINE
        if self._view is not None:
            await self._view.caught_up.wait()
        while True:
            try:
                depth = await ledger.depth() if inline is None else inline.depth
                metrics.measured(backend, depth=depth, workers=len(await ledger.workers()))
            except TaskQueueUnavailable as error:
                metrics.lost(backend)
                _LOG.warning("turns_not_measured", extra={"reason": str(error)})
            await asyncio.sleep(self._measure_every_s)

    def _fails(self, ended: asyncio.Future[None]) -> None:
        if not ended.cancelled() and (error := ended.exception()) and not self.failed.done():
            self.failed.set_exception(error)
