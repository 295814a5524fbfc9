"""Composition root: settings and roles become running services; nothing is wired elsewhere.

    verify topology → stages and edges start side by side → run → edges stop → stages stop

A stage that crashes or an edge that fails ends the process, with nothing half done; whoever
supervises it starts it again.

Source: DESIGN "Roles", "Failure".
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from streams import ending
from streams.agents.app import StageApp, group_of
from streams.agents.backlog import KafkaBacklog
from streams.agents.group import StageGroup, as_harn_error
from streams.agents.pump import Pump
from streams.agents.pump_reports import PumpReports
from streams.agents.transaction import Faults, no_faults
from streams.codec import Codec
from streams.edge.broadcaster import Broadcaster
from streams.edge.canceller import Canceller
from streams.edge.codecs import codec_of
from streams.edge.handlers import Handlers, load_manifest
from streams.edge.ingest.http import IngestService
from streams.edge.invoker import Invoker
from streams.edge.publisher import Publisher
from streams.edge.relay import Relay
from streams.edge.scheduler_proposal import SchedulerProposal
from streams.edge.service import EdgeService
from streams.edge.sources.legacy import LegacyInbox
from streams.edge.sources.service import StreamSources
from streams.edge.turns.turns_service import TurnsService
from streams.errors import ConfigError, HarnError
from streams.observe import logs
from streams.observe.ingest_metrics import IngestMetrics
from streams.observe.invoker_metrics import InvokerMetrics
from streams.observe.pump_metrics import PumpMetrics
from streams.observe.relay_metrics import RelayMetrics
from streams.observe.scheduler_metrics import OBSERVED as OBSERVED_QUEUES
from streams.observe.server import ObserveServer
from streams.observe.source_metrics import SourceMetrics
from streams.observe.stage_metrics import StageCollectors, StageMetrics
from streams.observe.trigger_metrics import OBSERVED as OBSERVED_TRIGGERS
from streams.observe.turn_metrics import TurnMetrics
from streams.provision import check_topology, verify_stages, verify_topics_of_edges
from streams.roles import Role
from streams.settings import Settings
from streams.stages import FOLDS, bind
from streams.turn_working import inline_turns
from topology import TOPOLOGY, Stage
from topology.edges import BROADCASTER, CANCELLER, INGEST, INVOKER, PROPOSER, PUMP, RELAY, TURN_API

_log = logs.logger(__name__)

_STOP_S = 30.0
"""What stopping may take besides the drain time, before the process is ended all the same."""

_EXIT_S = 3.0
"""What the process may still take when all has stopped: a thread can hang in a client's call."""

_OUTCOMES_LINGER_MS = 5  # senders wait for what the other edges append, and nobody for these

# The edges that run in each role, as the topology declares them.
_EDGES = {
    Role.INGEST: (INGEST,),
    Role.REGISTRY: (BROADCASTER, CANCELLER),
    Role.INBOX: (PUMP,),
    Role.INVOKER: (INVOKER,),
    Role.RELAY: (RELAY,),
    Role.SCHEDULER: (PROPOSER,),
}


@dataclass(slots=True, kw_only=True)
class Plan:
    """What one process shall run.

    `manifest` is needed by invokers: it names the handlers that they can run, and the agents of an
    ingest that runs turns itself.  `lifeline` is a file
    descriptor that is closed when whoever started the process is gone.  `restarts` is how often it
    was started again before.  `faults` is for chaos tests.
    """

    settings: Settings
    roles: Sequence[Role]
    manifest: Path | None = None
    lifeline: int | None = None
    restarts: int = 0
    faults: Faults = no_faults
    folds: dict[str, Any] = field(default_factory=lambda: FOLDS)


class Application:
    """The running roles of one process.  Made and used inside one event loop."""

    def __init__(self, plan: Plan, *, codec: Codec | None = None) -> None:
        self._plan = plan
        self._codec = codec or codec_of(plan.settings)
        self.metrics = CollectorRegistry()
        _count_restarts(self.metrics, plan.restarts)
        self._working = False
        self._publishers: list[Publisher] = []
        self._edges: list[EdgeService] = []
        self._observe: ObserveServer | None = None
        self._stages = StageGroup(self._stage_apps())

    # ------------------------------------------------------------------ wiring
    def _stage_apps(self) -> list[StageApp]:
        settings = self._plan.settings
        counts = {stage.source: _partitions(stage.source, settings) for stage in TOPOLOGY.stages}
        observed = OBSERVED_TRIGGERS | OBSERVED_QUEUES
        bound = bind(self._codec, counts.__getitem__, folds=self._plan.folds, observed=observed)
        collectors = StageCollectors(self.metrics)
        journal = _partitions("audit.journal", settings)
        return [
            StageApp(
                stage,
                settings,
                journal_partitions=journal,
                metrics=StageMetrics(
                    collectors,
                    stage.declaration.name,
                    topic=stage.declaration.source,
                    consumer=group_of(stage.declaration.role),
                ),
                faults=self._plan.faults,
                pump=self._pump(stage.declaration),
            )
            for stage in bound.values()
            if stage.declaration.role in self._plan.roles
        ]

    def _pump(self, stage: Stage) -> Pump | None:
        """Make what lets inbox, and no other stage, go on only as far as the invokers keep up."""
        if stage.role != Role.INBOX:
            return None
        settings, topic = self._plan.settings, stage.source
        partitions = _partitions(INVOKER.reads_in_group[0], settings)
        reports = PumpReports(settings, self._codec, topic)
        backlog = KafkaBacklog(settings, partitions)
        return Pump(backlog, reports, PumpMetrics(self.metrics, topic))

    def _make_edges(self) -> list[EdgeService]:
        settings, roles, codec = self._plan.settings, self._plan.roles, self._codec
        edges: list[EdgeService] = []
        if Role.RELAY in roles:
            edges.append(Relay(settings, codec, observer=RelayMetrics(self.metrics)))
        if Role.SCHEDULER in roles:
            edges.append(SchedulerProposal(settings, codec))
        shared = self._publish("edges") if {Role.INGEST, Role.REGISTRY} & set(roles) else None
        if Role.REGISTRY in roles and shared:
            edges.append(Broadcaster(settings, shared, codec))
            edges.append(Canceller(settings, shared, codec))
        if Role.INVOKER in roles:
            handlers = _handlers(self._plan.manifest)
            outcomes = self._publish("outcomes", linger_ms=_OUTCOMES_LINGER_MS)
            observer = InvokerMetrics(self.metrics)
            edges.append(Invoker(settings, outcomes, codec, handlers, observer=observer))
        if Role.INGEST in roles and shared:
            sources = SourceMetrics(self.metrics)
            edges.append(LegacyInbox(settings, shared, codec, observer=sources))
            edges.append(_stream_sources(settings, shared, codec, sources))
            edges += self._http_edges(shared)
        return edges

    def _publish(self, name: str, *, linger_ms: int = 1) -> Publisher:
        self._publishers.append(Publisher(self._plan.settings, name=name, linger_ms=linger_ms))
        return self._publishers[-1]

    def _http_edges(self, publisher: Publisher) -> list[EdgeService]:
        """Make ingest, and what its listener serves besides."""
        settings, observer = self._plan.settings, IngestMetrics(self.metrics)
        turns = None
        if settings.serves_turns:
            metrics = TurnMetrics(self.metrics)
            turns = TurnsService(
                settings,
                publisher,
                self._codec,
                inline=inline_turns(settings, self._plan.manifest, self.metrics),
                observer=observer,
                metrics=metrics,
            )
        routes = [] if turns is None else turns.routes()
        ingest = IngestService(settings, publisher, self._codec, routes=routes, observer=observer)
        # Edges stop in the opposite order: the listener first.
        return [ingest] if turns is None else [turns, ingest]

    # ------------------------------------------------------------------ life
    async def start(self) -> None:
        """Start everything; returns once every stage owns its partitions and every edge works.

        Raises: HarnError when something cannot start.
        """
        await asyncio.to_thread(self._verify)
        self._edges = self._make_edges()
        self._observe = ObserveServer(
            self._plan.settings, self.metrics, ready=lambda: self.is_ready
        )
        await self._observe.start()
        await _all(*(publisher.start() for publisher in self._publishers))
        starting = [edge.start() for edge in self._edges]
        await self._unless_failed(_all(self._stages.start(), *starting))
        await self._unless_failed(self._stages.ready())
        self._working = True
        _log.info("ready", extra={"roles": ",".join(self._plan.roles), "pid": os.getpid()})

    async def _unless_failed(self, wanted: Coroutine[Any, Any, Any]) -> None:
        """Wait for something that never comes when a stage crashes meanwhile."""
        waiting = asyncio.ensure_future(wanted)
        failed = asyncio.ensure_future(self.failed())
        try:
            await asyncio.wait({waiting, failed}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise failed.result()
            waiting.result()
        finally:
            await _cancel(waiting, failed)

    def _verify(self) -> None:
        settings, roles = self._plan.settings, self._plan.roles
        check_topology(settings, bindings=self._plan.folds)
        stages = [stage for stage in TOPOLOGY.stages if stage.role in roles]
        verify_stages(settings, stages)
        edges = [edge for role in roles for edge in _EDGES.get(role, ())]
        if (
            settings.serves_turns
            and settings.turn_queue_backend == "kafka"
            and Role.INGEST in roles
        ):
            edges.append(TURN_API)
        names = {n for edge in edges for n in (*edge.writes, *edge.reads, *edge.reads_in_group)}
        fixed = sorted(name for name in names if not TOPOLOGY.topic(name).is_family)
        verify_topics_of_edges(settings, fixed)

    @property
    def http_url(self) -> str:
        """Where ingest listens; empty when this process has no ingest."""
        return next((edge.url for edge in self._edges if isinstance(edge, IngestService)), "")

    @property
    def metrics_port(self) -> int:
        """The port of metrics and health; 0 before start."""
        return 0 if self._observe is None else self._observe.port

    @property
    def is_ready(self) -> bool:
        """Whether every edge works, and every stage of this process owns its partitions."""
        return self._working and all(app.live.ready.is_set() for app in self._stages.apps)

    @property
    def _services(self) -> list[EdgeService | Publisher]:
        return [*self._edges, *self._publishers]

    async def failed(self) -> HarnError:
        """Wait until something fails; returns why."""
        crashed = asyncio.ensure_future(self._stages.crashed())
        try:
            done, _ = await asyncio.wait(
                {crashed, *(service.failed for service in self._services)},
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            crashed.cancel()
        first = next(iter(done))
        reason = first.exception() or first.result()
        assert isinstance(reason, BaseException), "a failed service says why"
        return as_harn_error(reason)

    async def stop(self) -> None:
        """Stop edges, then stages, then what they shared; bounded by the drain time.

        What does not stop in order keeps nothing else from stopping.
        """
        await _stop(*(edge.stop() for edge in reversed(self._edges)))
        if self._stages.started:
            await _stop(self._stages.stop())
        await _stop(*(publisher.stop() for publisher in self._publishers))
        if self._observe is not None:
            await _stop(self._observe.stop())
        for service in self._services:
            if service.failed.done():
                service.failed.exception()  # the first failure has ended the process


async def _all(*wanted: Coroutine[Any, Any, Any]) -> None:
    """Wait for all; the first failure cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in wanted:
                group.create_task(each)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _stop(*stopping: Coroutine[Any, Any, None]) -> None:
    for outcome in await asyncio.gather(*stopping, return_exceptions=True):
        if outcome is not None:
            _log.warning("service_stopped_badly", extra={"reason": repr(outcome)})


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel, and wait until nothing of it runs any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _count_restarts(registry: CollectorRegistry, restarts: int) -> None:
    counter = Counter(
        "harn_restarts_total", "Restarts after a failure by the supervisor.", registry=registry
    )
    counter.inc(restarts)


def _handlers(manifest: Path | None) -> Handlers:
    if manifest is None:
        problem = "the invoker runs the handlers of a manifest, and none was named"
        raise ConfigError(problem, remedy="name one with --manifest")
    return Handlers.load(load_manifest(manifest))


def _stream_sources(
    settings: Settings, publisher: Publisher, codec: Codec, observer: SourceMetrics
) -> StreamSources:
    avro = None
    if settings.schema_registry_url is not None:
        # Imported here for the reason of `streams.edge.codecs`.
        module = importlib.import_module("streams.edge.sources.avro")
        avro = module.RegistryAvro(settings.schema_registry_url)
    return StreamSources(settings, publisher, codec, avro=avro, observer=observer)


def _partitions(topic: str, settings: Settings) -> int:
    """Partition count of a fixed topic under these settings."""
    count = TOPOLOGY.topic(topic).partitions
    return count if isinstance(count, int) else settings.partitions


async def run(
    plan: Plan,
    *,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Run the roles until SIGTERM or SIGINT, or until the lifeline is cut.

    It is what its process is for: the process is ended some seconds after, whatever hangs in it.

    Args:   on_ready: called once all roles work.
    Raises: HarnError when they cannot start or something fails while they run.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if plan.lifeline is not None:
        loop.add_reader(plan.lifeline, _cut, loop, plan.lifeline, stop)
    application = Application(plan)
    stopping = asyncio.ensure_future(stop.wait())
    starting = asyncio.ensure_future(application.start())
    failing: asyncio.Future[HarnError] = loop.create_future()
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return
        starting.result()
        if on_ready is not None:
            on_ready()
        failing = asyncio.ensure_future(application.failed())
        await asyncio.wait({failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            raise failing.result()
    finally:
        _log.info("stopping", extra={"roles": ",".join(plan.roles), "pid": os.getpid()})
        ending.end_within(plan.settings.drain_ms / 1_000 + _STOP_S)
        await _cancel(starting, stopping, failing)
        await application.stop()
        ending.end_within(_EXIT_S)


def _cut(loop: asyncio.AbstractEventLoop, lifeline: int, stop: asyncio.Event) -> None:
    """Stop: nothing is ever written to a lifeline, so that it can be read when it is closed."""
    loop.remove_reader(lifeline)
    _log.warning("supervisor_gone", extra={"pid": os.getpid()})
    stop.set()
