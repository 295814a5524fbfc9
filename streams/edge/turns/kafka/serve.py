"""Serves turns on Kafka until it is told to stop: the worker, its heartbeats, its publisher.

Source: SEMANTICS 8.5, 8.8, 8.9.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from streams.codec import Codec
from streams.core.turn.fleet import HEARTBEAT_MS, Presence
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import require_topic
from streams.edge.turns.body import Bodies
from streams.edge.turns.kafka.layout import require_layout
from streams.edge.turns.kafka.presence import FLEET, Heartbeats, namesakes
from streams.edge.turns.kafka.worker import TurnObserver, TurnWorker
from streams.observe import logs
from streams.settings import Settings

__all__ = ["serve"]

_LOG = logs.logger(__name__)


async def serve(  # noqa: PLR0913 - most are said by name, and have one value a process
    settings: Settings,
    codec: Codec,
    bodies: Bodies,
    *,
    slots: int,
    worker_id: str,
    stop: asyncio.Event,
    observer: TurnObserver,
    on_ready: Callable[[], object] = lambda: None,
    heartbeat_every_s: float = HEARTBEAT_MS / 1_000,
) -> None:
    """Run turns until `stop` is set; then hand over what is owned, and leave the group.

    Args:   slots: turns that run at once.  worker_id: names the worker in the fleet.
            on_ready: called once turns can be taken.
    Raises: TopologyError when a topic is missing, or has other partitions than the settings say;
            BrokerError, when the broker does not answer at the start, or refuses; what broke the
            worker.
    """
    await asyncio.to_thread(require_topic, settings, FLEET)
    await asyncio.to_thread(require_layout, settings)
    host = socket.gethostname()
    token = f"{host}:{os.getpid()}:agent-dispatch"
    publisher = Publisher(settings, name="turn-worker")
    worker = TurnWorker(
        settings, codec, bodies, slots=slots, token=token, host=host, observer=observer
    )
    presence = Presence(
        worker_id=worker_id,
        token=token,
        host=host,
        capacity=slots,
        queue_backend="kafka",
        started_at_ms=worker.now_ms(),
    )
    heartbeats = Heartbeats(
        publisher, codec, presence, worker.doing, worker.now_ms, every_s=heartbeat_every_s
    )
    worker.tell = heartbeats.changed
    others = await asyncio.to_thread(namesakes, settings, codec, presence, worker.now_ms())
    if others:
        extra = {"worker_id": worker_id, "token": ", ".join(sorted(others))}
        _LOG.warning("turn_worker_id_taken", extra=extra)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await publisher.start()
        await worker.start()
        heartbeats.start()
        on_ready()
        ended = (stopping, worker.failed, publisher.failed)
        done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        stopping.cancel()
        await worker.stop()
        await heartbeats.stop()
        await publisher.stop()
