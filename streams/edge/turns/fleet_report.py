"""How the fleet stands, read once: for a command, beside whatever serves and runs turns."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from typing import NamedTuple

from streams.codec import Codec
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import require_topic
from streams.edge.turns.kafka_ledger import KafkaLedger
from streams.edge.turns.opening import open_turns
from streams.edge.turns.sql_ledger import SqlLedger
from streams.edge.turns.turn_ledger import TurnLedger
from streams.edge.turns.turn_store import FleetWorker
from streams.edge.turns.turn_view import TurnView
from streams.errors import BrokerError
from streams.settings import Settings

__all__ = ["FleetReport", "fleet_report"]

_WORKERS = "fleet.workers"
_READ_S = 30.0


class FleetReport(NamedTuple):
    """What carries turns, how many are enqueued and not done, and who runs them."""

    backend: str
    depth: int
    workers: Sequence[FleetWorker]


async def fleet_report(settings: Settings, codec: Codec) -> FleetReport:
    """Ask whatever carries turns; on Kafka `settings` name the cluster.

    Raises: TaskQueueUnavailable; TopologyError when topics are missing, BrokerError when the broker
            does not answer.
    """
    if settings.turn_queue_backend != "kafka":
        consumer = f"{socket.gethostname()}:{os.getpid()}:fleet"
        turns = await asyncio.to_thread(open_turns, settings, consumer=consumer, must_exist=True)
        try:
            return await _reported(SqlLedger(turns))
        finally:
            await asyncio.to_thread(turns.close)
    await asyncio.to_thread(require_topic, settings, _WORKERS)
    view = TurnView(settings, codec, topics=(_WORKERS,))
    view.start()
    try:
        async with asyncio.timeout(_READ_S):
            await view.caught_up.wait()
        # It appends nothing, so its publisher stays as it is made.
        publisher = Publisher(settings, name="fleet")
        return await _reported(KafkaLedger(settings, publisher, codec, view))
    except TimeoutError:
        message = f"{_WORKERS}: no answer from the broker for {_READ_S:.0f} s"
        raise BrokerError(message, retryable=True) from None
    finally:
        await view.stop()


async def _reported(ledger: TurnLedger) -> FleetReport:
    return FleetReport(ledger.backend, await ledger.depth(), await ledger.workers())
