"""The turn API of a process: its routes for ingest's listener, and what they need of the carrier.

Source: DESIGN "Roles".
"""

from __future__ import annotations

import asyncio
import os
import socket

from aiohttp import web

from streams.codec import Codec
from streams.edge.ingest.answer import Door, IngestObserver
from streams.edge.ingest.origins import Origins
from streams.edge.publisher import Publisher
from streams.edge.turns.enqueuer import Enqueuer
from streams.edge.turns.kafka_ledger import KafkaLedger
from streams.edge.turns.opening import open_turns
from streams.edge.turns.sql_ledger import SqlLedger
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.turn_ledger import TurnLedger
from streams.edge.turns.turn_view import TurnView
from streams.edge.turns.turns_api import TurnsApi
from streams.errors import TaskQueueUnavailable
from streams.observe import logs
from streams.observe.turn_metrics import TurnMetrics
from streams.settings import Settings

__all__ = ["TurnsService"]

_LOG = logs.logger(__name__)

_IN_FLIGHT_MAX = 64
_MEASURE_EVERY_S = 30.0


class TurnsService:
    """Answers for goals, sessions and tasks; an `EdgeService`.

    Args:    publisher: started and stopped by whoever made it, around this service.
    Raises:  TaskQueueUnavailable, when turns are carried by a database that cannot be had.
    """

    name = "turns"

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        codec: Codec,
        *,
        observer: IngestObserver | None = None,
        metrics: TurnMetrics | None = None,
        measure_every_s: float = _MEASURE_EVERY_S,
    ) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._view: TurnView | None = None
        self._sql: SqlTurns | None = None
        if settings.turn_queue_backend == "kafka":
            self._view = TurnView(settings, codec)
            ledger = KafkaLedger(settings, publisher, codec, self._view)
        else:
            # Nothing else works yet, so that nobody waits for it.
            self._sql = open_turns(settings, consumer=f"{socket.gethostname()}:{os.getpid()}:api")
            ledger = SqlLedger(self._sql)
        self._ledger: TurnLedger = ledger
        self._metrics = metrics
        self._measure_every_s = measure_every_s
        self._measuring: asyncio.Task[None] | None = None
        self._api = TurnsApi(
            ledger,
            Enqueuer(ledger),
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
        if self._metrics is not None:
            self._measuring = asyncio.create_task(self._measure(self._metrics), name="turns")
            self._measuring.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Let go of the carrier; idempotent."""
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.wait([self._measuring])
            self._measuring = None
        if self._view is not None:
            await self._view.stop()
        if self._sql is not None:
            await asyncio.to_thread(self._sql.close)

    async def _measure(self, metrics: TurnMetrics) -> None:
        """Measure now and then, until cancelled; nobody depends on it."""
        ledger = self._ledger
        if self._view is not None:
            await self._view.caught_up.wait()
        while True:
            try:
                workers, depth = await ledger.workers(), await ledger.depth()
                metrics.measured(ledger.backend, depth=depth, workers=len(workers))
            except TaskQueueUnavailable as error:
                metrics.lost(ledger.backend)
                _LOG.warning("turns_not_measured", extra={"reason": str(error)})
            await asyncio.sleep(self._measure_every_s)

    def _ended(self, measuring: asyncio.Task[None]) -> None:
        if not measuring.cancelled() and not self.failed.done():
            error = measuring.exception()
            if error is not None:
                self.failed.set_exception(error)
