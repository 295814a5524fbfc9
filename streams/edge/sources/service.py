"""The streams of every trigger in force: a consumer each, which comes and goes with its trigger.

A trigger's consumer starts once the revision that brought it is broadcast: no event may reach an
inbox that does not know its trigger yet.  A new version that reads the same topics in the same way
goes on with the consumer that runs.  Every ingest process reads every trigger; the groups share the
partitions out.

Source: DESIGN law 3, "Roles", ingest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from streams.codec import Codec
from streams.core.record import Position
from streams.core.stream_source import StreamSource, source_of
from streams.core.wire import RowRegisteredBinding, SourceRejected
from streams.edge.ingest.envelopes import ENVELOPES, Envelopes
from streams.edge.publisher import Publisher
from streams.edge.registry_follower import RegistryFollower
from streams.edge.registry_view import RegistryView
from streams.edge.sources.consumer import Convert, SourceConsumer, SourceObserver
from streams.edge.sources.events import SourceEvent, SourceRecord, event_of
from streams.edge.sources.values import AvroValues, reader_of
from streams.errors import BrokerError
from streams.observe import logs
from streams.settings import Settings

__all__ = ["SOURCES_MAX", "EnvelopeSink", "StreamSources", "converter_of", "sources_in_force"]

_LOG = logs.logger(__name__)

SOURCES_MAX = 100
"""Triggers whose topics one process reads: each has a client and a thread."""

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 5.0


class EnvelopeSink:
    """Appends what sources made, again and again until the broker has all of it."""

    def __init__(self, publisher: Publisher, codec: Codec) -> None:
        self._publisher = publisher
        self._envelopes = Envelopes(publisher, codec)
        self._encode_rejected = codec.encoder("source_rejected")

    async def append(self, made: Sequence[SourceEvent | SourceRejected]) -> None:
        """Return once the broker has all of it.  Raises BrokerError when it never will."""
        waiting, retry_s = list(made), _RETRY_FIRST_S
        while True:
            appends = [self._append_soon(each) for each in waiting]
            await asyncio.wait(appends)
            failed: list[SourceEvent | SourceRejected] = []
            reasons: list[str] = []
            for each, append in zip(waiting, appends, strict=True):
                error = append.exception()
                if error is None:
                    continue
                if not isinstance(error, BrokerError) or not error.retryable:
                    raise error
                failed.append(each)
                reasons.append(str(error))
            if not failed:
                return
            extra = {"events": len(failed), "reason": reasons[0], "wait_s": retry_s}
            _LOG.warning("stream_events_delayed", extra=extra)
            await asyncio.sleep(retry_s)
            waiting, retry_s = failed, min(2 * retry_s, _RETRY_MAX_S)

    def _append_soon(self, made: SourceEvent | SourceRejected) -> asyncio.Future[Position]:
        if isinstance(made, SourceEvent):
            return self._envelopes.append_soon(
                made.event, traceparent=made.traceparent, trigger_id=made.trigger_id
            )
        position = Position(made["topic"], made["partition"], made["offset"])
        # By its position, so that repeats of the word meet in one partition.
        return self._publisher.append_soon(
            ENVELOPES,
            kind="source_rejected",
            value=self._encode_rejected(made),
            key=str(position).encode(),
        )


class StreamSources:
    """The consumers of every trigger that reads topics; an `EdgeService`.

    Args:    avro: decodes Avro values; None where no schema registry is configured.
    """

    name = "stream-sources"

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        codec: Codec,
        *,
        avro: AvroValues | None = None,
        observer: SourceObserver | None = None,
    ) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._sink = EnvelopeSink(publisher, codec)
        self._avro = avro
        self._observer = observer
        self._consumers: dict[str, SourceConsumer] = {}
        self._wanted: Mapping[str, StreamSource] = {}
        self._refused: frozenset[tuple[str, str]] = frozenset()
        self._changed = asyncio.Event()
        self._converging: asyncio.Task[None] | None = None
        self._follower = RegistryFollower(settings, codec, self._take, name=self.name)

    @property
    def consumers(self) -> Mapping[str, SourceConsumer]:
        """Return the consumers that run, by trigger id."""
        return self._consumers

    async def start(self) -> None:
        """Begin to follow the registry; sources start as soon as it has been read."""
        self._converging = self._loop.create_task(self._converge(), name=self.name)
        self._converging.add_done_callback(self._ended)
        self._follower.start()

    async def stop(self) -> None:
        """Stop reading after what is under way; idempotent."""
        await self._follower.stop()
        if self._converging is not None:
            self._converging.cancel()
            await asyncio.wait([self._converging])
            self._converging = None
        await asyncio.gather(*(each.stop() for each in self._consumers.values()))
        self._consumers.clear()

    def _take(self, view: RegistryView) -> None:
        """Note what is in force, on the event loop."""
        if view.broadcast < view.revision:
            return  # the next view says it again
        self._wanted = self._usable(sources_in_force(view.rows))
        self._changed.set()

    def _usable(self, sources: Sequence[StreamSource]) -> dict[str, StreamSource]:
        """Return the sources that this process can read; the others are told once."""
        usable: dict[str, StreamSource] = {}
        refused: set[tuple[str, str]] = set()
        for source in sources:
            if source.format == "avro" and self._avro is None:
                reason = "its format is avro, but SCHEMA_REGISTRY_URL is not set"
                refused.add((source.trigger_id, reason))
            elif len(usable) == SOURCES_MAX:
                reason = f"{SOURCES_MAX} triggers read topics already; run another namespace apart"
                refused.add((source.trigger_id, reason))
            else:
                usable[source.trigger_id] = source
        for trigger_id, reason in sorted(refused - self._refused):
            extra = {"trigger_id": trigger_id, "reason": reason}
            _LOG.error("stream_source_unusable", extra=extra)
        self._refused = frozenset(refused)
        return usable

    async def _converge(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted
            gone = [each for key, each in self._consumers.items() if wanted.get(key) != each.source]
            await asyncio.gather(*(self._stop_source(each) for each in gone))
            for trigger_id, source in wanted.items():
                if trigger_id not in self._consumers:
                    self._start_source(source)

    async def _stop_source(self, consumer: SourceConsumer) -> None:
        await consumer.stop()
        del self._consumers[consumer.source.trigger_id]
        extra = {"trigger_id": consumer.source.trigger_id}
        _LOG.info("stream_source_stopped", extra=extra)

    def _start_source(self, source: StreamSource) -> None:
        consumer = SourceConsumer(
            self._settings,
            source,
            self._sink,
            converter_of(source, self._avro, self._settings.http_max_body_bytes),
            observer=self._observer,
        )
        self._consumers[source.trigger_id] = consumer
        consumer.failed.add_done_callback(self._consumer_failed)
        consumer.start()
        extra = {"trigger_id": source.trigger_id, "topics": ",".join(source.topics)}
        _LOG.info("stream_source_started", extra=extra)

    def _consumer_failed(self, failed: asyncio.Future[None]) -> None:
        if not failed.cancelled() and (error := failed.exception()) is not None:
            self._fail(error)

    def _ended(self, converging: asyncio.Task[None]) -> None:
        if not converging.cancelled() and (error := converging.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


def converter_of(source: StreamSource, avro: AvroValues | None, bytes_max: int) -> Convert:
    """Return what makes events of a source's records."""
    read = reader_of(source.format, avro)

    def convert(record: SourceRecord) -> SourceEvent | SourceRejected | None:
        return event_of(source, record, read, time.time_ns() // 1_000_000, bytes_max)

    return convert


def sources_in_force(rows: Sequence[RowRegisteredBinding]) -> list[StreamSource]:
    """Return what active bindings read, by trigger id."""
    active = (row["binding"] for row in rows if row["state"] == "active")
    return [source for binding in active if (source := source_of(binding)) is not None]
