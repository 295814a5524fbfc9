"""A log in memory: what the in-memory driver wrote, or what a test made up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from streams.audit.log import Headers, LogRecord, Place, Span

__all__ = ["MemoryLog"]

_OFFSET = attrgetter("offset")
_LIST_MAX = 1_000


@dataclass(slots=True)
class MemoryLog:
    """Topics as lists of records; implements `streams.audit.log.LogReader`.

    `topics` holds each topic's partitions, each a list in offset order.  `starts` holds the log
    start of partitions whose head was cut.  `groups` maps (group, topic, partition) to an offset.
    """

    topics: dict[str, list[list[LogRecord]]] = field(
        default_factory=dict[str, list[list[LogRecord]]]
    )
    starts: dict[Place, int] = field(default_factory=dict[Place, int])
    groups: dict[tuple[str, str, int], int] = field(default_factory=dict[tuple[str, str, int], int])

    def create(self, topic: str, partitions: int) -> None:
        """Create an empty topic."""
        self.topics[topic] = [[] for _ in range(partitions)]

    def append(
        self,
        place: Place,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> int:
        """Append one record; return its offset."""
        topic, partition = place
        records = self.topics[topic][partition]
        offset = records[-1].offset + 1 if records else self.starts.get(place, 0)
        records.append(LogRecord(offset, timestamp_ms, key, value, headers))
        return offset

    def cut(self, place: Place, start: int) -> None:
        """Remove the records before offset `start`, as retention does."""
        topic, partition = place
        self.topics[topic][partition] = [
            r for r in self.topics[topic][partition] if r.offset >= start
        ]
        self.starts[place] = start

    # ------------------------------------------------------------------ LogReader
    def partitions(self, topic: str, /) -> int:
        """See `LogReader.partitions`."""
        return len(self.topics.get(topic, ()))

    def topic_names(self) -> frozenset[str]:
        """See `LogReader.topic_names`."""
        return frozenset(self.topics)

    def spans(self, places: Collection[Place], /) -> dict[Place, Span]:
        """See `LogReader.spans`."""
        return {place: self._span(place) for place in places}

    def _span(self, place: Place) -> Span:
        topic, partition = place
        records = self.topics[topic][partition]
        start = self.starts.get(place, 0)
        return Span(start, records[-1].offset + 1 if records else start)

    def read(self, place: Place, start: int, end: int, /) -> Iterator[list[LogRecord]]:
        """See `LogReader.read`."""
        topic, partition = place
        records = self.topics[topic][partition]
        first = bisect_left(records, start, key=_OFFSET)
        last = bisect_left(records, end, key=_OFFSET)
        for at in range(first, last, _LIST_MAX):
            yield records[at : min(at + _LIST_MAX, last)]

    def offset_at(self, place: Place, timestamp_ms: int, /) -> int:
        """See `LogReader.offset_at`."""
        topic, partition = place
        for record in self.topics[topic][partition]:
            if record.timestamp >= timestamp_ms:
                return record.offset
        return self._span(place).end

    def committed(self, group: str, topic: str, partitions: Collection[int], /) -> dict[int, int]:
        """See `LogReader.committed`."""
        found = {p: self.groups.get((group, topic, p)) for p in partitions}
        return {p: offset for p, offset in found.items() if offset is not None}
