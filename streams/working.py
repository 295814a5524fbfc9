"""Runs a worker in this process: one that stays, or one that takes what there is and ends.

Source: DESIGN "A job"; SEMANTICS 5.4.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from streams import ending
from streams.codec import Codec
from streams.collector import look_seldom
from streams.core.shards import mailbox_keys
from streams.core.wire import JobResponse
from streams.edge.publisher import Publisher
from streams.edge.queue_catalog import queue_topics, read_configured
from streams.edge.queue_creation import create_queue
from streams.edge.topic_reader import topic_names
from streams.edge.worker import Worker, WorkerPlan
from streams.edge.worker.consumer import Consumer
from streams.edge.worker.observer import WorkerObserver
from streams.edge.worker.reload import Reloader
from streams.observe import logs
from streams.observe.server import ObserveServer
from streams.observe.worker_metrics import WorkerMetrics
from streams.provision import provision_queue
from streams.settings import Settings

__all__ = [
    "RESPONSES_KEPT_MAX",
    "Drained",
    "Stop",
    "drain_queue",
    "queue_keys",
    "run_worker",
]

_log = logs.logger(__name__)

RESPONSES_KEPT_MAX = 10_000
"""Responses that a drain returns; it counts the others."""

Stop = concurrent.futures.Future[None]

_STOP_S = 30.0
"""What stopping may take besides the drain time, before the process is ended all the same."""

_EXIT_S = 3.0


@dataclass(slots=True)
class Drained:
    """What a drain came to."""

    queue: str
    consumer_id: str
    claim_ttl_ms: int
    drained: int = 0
    """Jobs that were answered."""
    acked: int = 0
    """Those of them that are done."""
    deferred: int = 0
    """Those of them that come again when their claims run out."""
    responses: list[JobResponse] = field(default_factory=list[JobResponse])
    """The responses, RESPONSES_KEPT_MAX at most."""


def queue_keys(settings: Settings, codec: Codec, queues: Sequence[str]) -> list[str]:
    """Make the topics that queues lack, and return what they are known by in the mailbox.

    Raises: TopologyError for a name that cannot be a queue's; BrokerError.
    """
    configured = read_configured(settings, codec)
    there = queue_topics(topic_names(settings))
    keys: list[str] = []
    for queue in dict.fromkeys(each.strip() for each in queues):
        known = configured.get(queue)
        if known is not None or queue in there:
            provision_queue(settings, queue)
        else:
            create_queue(settings, codec, queue, shards=1, shard_by="tenant")
        keys += mailbox_keys(queue, known)
    return keys


async def run_worker(
    settings: Settings,
    codec: Codec,
    consumer: Consumer,
    plan: WorkerPlan,
    *,
    load: Callable[[], Consumer],
) -> None:
    """Work until SIGTERM or SIGINT; SIGHUP reads the manifest anew, by `load`.

    Raises: HarnError when it cannot start, or something fails while it runs.
    """
    look_seldom()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    registry = CollectorRegistry()
    publisher = Publisher(settings, name="worker")
    worker = Worker(settings, publisher, codec, consumer, plan, observer=WorkerMetrics(registry))
    reloader = Reloader(load, worker)
    loop.add_signal_handler(signal.SIGHUP, reloader.ask)
    is_ready = False
    observe = ObserveServer(settings, registry, ready=lambda: is_ready)
    await observe.start()
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await publisher.start()
        await worker.start()
        reloader.start()
        is_ready = True
        _log.info("ready", extra={"roles": "worker", "pid": os.getpid()})
        await _first_of(stopping, worker.failed, publisher.failed)
    finally:
        is_ready = False
        _log.info("stopping", extra={"roles": "worker", "pid": os.getpid()})
        ending.end_within(settings.drain_ms / 1_000 + _STOP_S)
        stopping.cancel()
        await reloader.stop()
        await worker.stop()
        await publisher.stop()
        await observe.stop()
        ending.end_within(_EXIT_S)


async def drain_queue(
    settings: Settings,
    codec: Codec,
    consumer: Consumer,
    plan: WorkerPlan,
    *,
    observer: WorkerObserver | None = None,
    stop: Stop | None = None,
) -> Drained:
    """Take what is ready on one queue, each job once, and return what became of it.

    What has not begun is released when it is cut short: by `stop`, or by a cancellation.

    Args:    plan: with `once`, and the keys of one queue.  stop: another thread may resolve it.
    Raises:  HarnError when it cannot start, or something fails while it runs.
    """
    assert plan.once, "a drain ends"
    queue = plan.queue_keys[0].partition("#")[0]
    drained = Drained(queue, plan.consumer_id, plan.claim_ttl_ms)
    publisher = Publisher(settings, name="drain")
    watch = _Tally(drained, observer)
    worker = Worker(settings, publisher, codec, consumer, plan, observer=watch)
    try:
        await publisher.start()
        await worker.start()
        stopping = [] if stop is None else [asyncio.wrap_future(stop)]
        await _first_of(worker.emptied, worker.failed, publisher.failed, *stopping)
    finally:
        await worker.stop()
        await publisher.stop()
    return drained


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    """Wait for the first; raise what it failed with."""
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    for each in done:
        each.result()


class _Tally:
    """Counts what a drain came to."""

    def __init__(self, drained: Drained, observer: WorkerObserver | None) -> None:
        self._drained = drained
        self._observer = observer

    def finished(self, queue: str, outcome: str, seconds: float) -> None:
        """Pass it on."""
        if self._observer is not None:
            self._observer.finished(queue, outcome, seconds)

    def answered(self, response: JobResponse) -> None:
        """Keep it."""
        if len(self._drained.responses) < RESPONSES_KEPT_MAX:
            self._drained.responses.append(response)

    def settled(self, queue: str, count: int, *, acked: bool) -> None:
        """Count them."""
        self._drained.drained += count
        if acked:
            self._drained.acked += count
        else:
            self._drained.deferred += count
        if self._observer is not None:
            self._observer.settled(queue, count, acked=acked)

    def claims_lost(self, count: int) -> None:
        """Pass it on."""
        if self._observer is not None:
            self._observer.claims_lost(count)

    def strays(self, count: int) -> None:
        """Pass it on."""
        if self._observer is not None:
            self._observer.strays(count)

    def loop_blocked(self) -> None:
        """Pass it on."""
        if self._observer is not None:
            self._observer.loop_blocked()
