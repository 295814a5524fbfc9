"""The legacy inbox, `trigger.inbox`, copied once: what was left there becomes envelopes.

At start the group's place is compared with the topic's end.  Where nothing is left, which is
everywhere but after a migration, nothing is started.  Otherwise a consumer copies the rest, as it
does for streams: its place moves once the broker has the envelopes, whatever cannot be an event is
quarantined, and ids are such that a record which is copied twice is taken once.  It waits for the
first revision: an event that no inbox has a trigger for would be done with.

Source: seed trigger-dispatcher, "Event-log topics"; DESIGN "Topics".
"""

from __future__ import annotations

import asyncio
import time

from confluent_kafka import KafkaException, TopicPartition

from streams.codec import Codec
from streams.core.stream_source import GROUP_PREFIX, StreamSource
from streams.core.wire import SourceRejected
from streams.edge.publisher import Publisher
from streams.edge.registry_follower import RegistryFollower
from streams.edge.registry_view import RegistryView
from streams.edge.sources.consumer import SourceConsumer, SourceObserver
from streams.edge.sources.events import SourceEvent, SourceRecord
from streams.edge.sources.legacy_records import legacy_event
from streams.edge.sources.service import EnvelopeSink
from streams.errors import BrokerError
from streams.kafka import ends_of, make_consumer, places_of
from streams.observe import logs
from streams.settings import Settings

__all__ = ["GROUP", "TOPIC", "LegacyInbox"]

TOPIC = "trigger.inbox"
GROUP = f"{GROUP_PREFIX}legacy-inbox"
"""No trigger's group: theirs name a namespace and a trigger."""

_LOG = logs.logger(__name__)

_TIMEOUT_S = 30.0  # a new broker makes its offsets topic first


class LegacyInbox:
    """Copies what the legacy inbox still holds; an `EdgeService`."""

    name = "legacy-inbox"

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        codec: Codec,
        *,
        observer: SourceObserver | None = None,
    ) -> None:
        self._settings = settings
        source = StreamSource(self.name, "", "legacy", (TOPIC,), "json", "earliest", ())
        self._consumer = SourceConsumer(
            settings,
            source,
            EnvelopeSink(publisher, codec),
            self._convert,
            group=GROUP,
            observer=observer,
        )
        self.failed = self._consumer.failed
        self._follower = RegistryFollower(settings, codec, self._take, name=self.name)
        self._copying = False

    async def start(self) -> None:
        """Copy what is left, if anything is.  Raises BrokerError when no broker answers."""
        left = await asyncio.to_thread(self._left)
        if left:
            _LOG.info("legacy_inbox_copies", extra={"records": left})
            self._follower.start()

    async def stop(self) -> None:
        """Stop after what is under way; the next start goes on from there.  Idempotent."""
        await self._follower.stop()
        await self._consumer.stop()

    def _take(self, view: RegistryView) -> None:
        """Begin once triggers are in force, on the event loop."""
        if not self._copying and 0 < view.revision <= view.broadcast:
            self._copying = True
            self._consumer.start()

    def _convert(self, record: SourceRecord) -> SourceEvent | SourceRejected | None:
        return legacy_event(record, time.time_ns() // 1_000_000, self._settings.http_max_body_bytes)

    def _left(self) -> int:
        """Return how many records are not copied yet."""
        consumer = make_consumer(self._settings, group_id=GROUP)
        try:
            numbers = consumer.list_topics(TOPIC, timeout=_TIMEOUT_S).topics[TOPIC].partitions
            every = [TopicPartition(TOPIC, number) for number in sorted(numbers)]
            left = 0
            for place in places_of(consumer, every, _TIMEOUT_S):
                first, end = ends_of(consumer, place, _TIMEOUT_S)
                left += end - max(first, place.offset)
        except KafkaException as error:
            reason = error.args[0].str()
            raise BrokerError(f"{TOPIC}: cannot be read: {reason}", retryable=True) from error
        else:
            return left
        finally:
            consumer.close()
