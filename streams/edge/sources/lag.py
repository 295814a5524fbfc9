"""How far one source is behind in the partitions that this member reads, looked at once a second.

What is behind counts from the group's place, so that records that wait for the broker, or for a
schema registry, are among them.  The ends are those that came with the last fetch: asking costs
nothing, and a partition of which nothing was fetched yet is left out.

Source: SEMANTICS 2.14 (`harn_event_log_consumer_lag`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from confluent_kafka import Consumer, TopicPartition

__all__ = ["LagObserver", "SourceLag"]

_EVERY_S = 1.0

_Place = tuple[str, int]


class LagObserver(Protocol):
    """What is told of a source's lag, on its thread."""

    def stands(self, trigger_id: str, lags: Mapping[str, int]) -> None:
        """Note the records behind, by topic; a topic of which nothing is read here is not there."""
        ...


class SourceLag:
    """The lag of one source's consumer; used on its thread alone."""

    def __init__(
        self,
        trigger_id: str,
        observer: LagObserver | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trigger_id = trigger_id
        self._observer = observer
        self._clock = clock
        self._consumer: Consumer | None = None
        self._places: dict[_Place, int] = {}
        self._looked_s = -math.inf

    def watch(self, consumer: Consumer) -> None:
        """Ask this consumer from now on; it reads nothing yet."""
        self._consumer = consumer
        self._places.clear()

    def end(self) -> None:
        """Nothing is read here any more."""
        self._consumer = None
        self._places.clear()
        if self._observer is not None:
            self._observer.stands(self._trigger_id, {})

    def stand(self, places: Mapping[_Place, int]) -> None:
        """The group's place in each of these partitions is known: their assignment, or a commit."""
        self._places.update(places)

    def leave(self, partitions: Collection[_Place]) -> None:
        """These partitions are another member's."""
        for place in partitions:
            self._places.pop(place, None)

    def look(self) -> None:
        """Tell how far it is behind, unless that was told within the last second."""
        now_s = self._clock()
        if self._observer is None or self._consumer is None or now_s - self._looked_s < _EVERY_S:
            return
        self._looked_s = now_s
        lags: dict[str, int] = {}
        for (topic, partition), place in self._places.items():
            found = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), cached=True
            )
            if found is not None and found[1] >= 0:
                lags[topic] = lags.get(topic, 0) + max(0, found[1] - place)
        self._observer.stands(self._trigger_id, lags)
