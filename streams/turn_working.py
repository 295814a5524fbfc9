"""Runs agent turns in this process: as a worker, on whatever carries turns, or inline.

Source: DESIGN "A turn"; seed queue-driven-agent-dispatch, "The model".
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from streams import ending
from streams.codec import Codec
from streams.edge.turns import sql_worker
from streams.edge.turns.agent_bodies import AgentBodies
from streams.edge.turns.agents import Agents
from streams.edge.turns.kafka import serve as kafka_worker
from streams.edge.turns.turns_service import Inline
from streams.edge.worker.reload import Reloader
from streams.observe import logs
from streams.observe.server import ObserveServer
from streams.observe.turn_metrics import TurnWorkerMetrics
from streams.settings import Settings

__all__ = ["inline_turns", "run_turn_worker"]

_LOG = logs.logger(__name__)

_STOP_S = 30.0
"""What stopping may take besides the drain time, before the process is ended all the same."""

_EXIT_S = 3.0


async def run_turn_worker(
    settings: Settings,
    codec: Codec,
    agents: Agents,
    *,
    load: Callable[[], Agents],
    slots: int,
    worker_id: str,
) -> None:
    """Run turns until SIGTERM or SIGINT; SIGHUP reads the agents anew, by `load`.

    Args:   settings: name the cluster, where turns are carried by Kafka.
    Raises: HarnError when it cannot start, or something fails while it runs.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    registry = CollectorRegistry()
    metrics = TurnWorkerMetrics(registry)
    bodies = AgentBodies(settings, agents, slots=slots, observer=metrics)
    reloader = Reloader(load, bodies, counts="agents")
    loop.add_signal_handler(signal.SIGHUP, reloader.ask)
    ready = asyncio.Event()

    def on_ready() -> None:
        ready.set()
        _LOG.info("ready", extra={"roles": "turn-worker", "pid": os.getpid()})

    observe = ObserveServer(settings, registry, ready=lambda: ready.is_set() and not stop.is_set())
    await observe.start()
    bodies.start()
    reloader.start()
    word = {
        "slots": slots,
        "worker_id": worker_id,
        "stop": stop,
        "observer": metrics,
        "on_ready": on_ready,
    }
    if settings.turn_queue_backend == "kafka":
        serve = kafka_worker.serve(settings, codec, bodies, **word)
    else:
        serve = sql_worker.serve(settings, bodies, **word)
    serving = asyncio.ensure_future(serve)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({serving, bodies.failed, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        _LOG.info("stopping", extra={"roles": "turn-worker", "pid": os.getpid()})
        ending.end_within(settings.drain_ms / 1_000 + _STOP_S)
        stop.set()
        stopping.cancel()
        await reloader.stop()
        await asyncio.wait({serving})
        await bodies.close()
        await observe.stop()
        ending.end_within(_EXIT_S)
    for each in (bodies.failed, serving):
        if each.done():
            each.result()


def inline_turns(
    settings: Settings, manifest: Path | None, registry: CollectorRegistry
) -> Inline | None:
    """Make what runs turns in the process that takes them; None when workers do.

    Raises: ManifestError, when an agent of the manifest cannot be used.
    """
    if not settings.runs_turns_inline:
        return None
    metrics = TurnWorkerMetrics(registry)
    slots = settings.agent_inline_turns_max
    bodies = AgentBodies(settings, Agents.load(manifest), slots=slots, observer=metrics)
    return Inline(bodies, metrics)
