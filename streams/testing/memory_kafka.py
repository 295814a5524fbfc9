"""A Kafka in memory, as far as the pipeline can tell it from a real one.

Partitions with offsets, append times and headers; the murmur2 partitioner; transactions that commit
topics and group offsets together or not at all; fencing of whoever had a transactional id before;
`read_committed`: nothing is seen of an open transaction, nor anything after its first record; and
offsets with gaps where transactions ended or were aborted.

It is one object in one thread; `streams.audit` reads it as a `LogReader`.

Source: KIP-98, KIP-447; FINDINGS 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from streams.audit.log import Headers, LogRecord, Place, Span
from streams.core.placement import partition_of
from streams.core.record import Position
from streams.testing.clock import VirtualClock

_LIST_MAX = 1_000
_NO_RECORDS: list[LogRecord] = []


class Fenced(Exception):  # noqa: N818 - what happened to the producer, in Kafka's own word
    """Another producer has taken over the transactional id: this one's words count no more."""


@dataclass(slots=True)
class _Partition:
    """Entries by offset; None where a transaction's end marker or an aborted record lies."""

    entries: list[LogRecord | None] = field(default_factory=list["LogRecord | None"])
    open_since: dict[str, int] = field(default_factory=dict[str, int])
    start: int = 0

    @property
    def stable_end(self) -> int:
        """Return the first offset that a reader of committed records does not pass."""
        return min(self.open_since.values(), default=len(self.entries))


def _once() -> bool:
    return False


class MemoryKafka:
    """Topics, groups and transactions.

    `clock` stamps every record (LogAppendTime).  `comes_twice` says whether an append outside
    transactions arrives twice, as one does that was repeated without idempotence.
    """

    def __init__(self, clock: VirtualClock, comes_twice: Callable[[], bool] = _once) -> None:
        self.clock = clock
        self._comes_twice = comes_twice
        self._topics: dict[str, list[_Partition]] = {}
        self._groups: dict[tuple[str, str, int], int] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, MemoryTransactions] = {}
        self._order: list[Position] = []

    # ------------------------------------------------------------------ topics
    def create(self, topic: str, partitions: int) -> None:
        """Create an empty topic."""
        self._topics[topic] = [_Partition() for _ in range(partitions)]

    def partitions(self, topic: str, /) -> int:
        """Return how many partitions a topic has; 0 when there is no such topic."""
        return len(self._topics.get(topic, ()))

    def topic_names(self) -> frozenset[str]:
        """Return the names of all topics."""
        return frozenset(self._topics)

    def _partition(self, topic: str, partition: int) -> _Partition:
        try:
            return self._topics[topic][partition]
        except (KeyError, IndexError) as error:
            raise KeyError(f"{topic}/{partition}: there is no such partition") from error

    def place(self, topic: str, key: bytes | None, partition: int | None) -> int:
        """Return the partition that a record goes to: the explicit one, else its key's."""
        if partition is not None:
            return partition
        return partition_of(key or b"", max(self.partitions(topic), 1))

    # ------------------------------------------------------------------ writing
    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> Position:
        """Append one record outside any transaction, as edges do."""
        position = self._append(topic, value, key, headers, partition)
        if self._comes_twice():
            self._append(topic, value, key, headers, partition)
        return position

    def _append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        partition: int | None,
    ) -> Position:
        where = self.place(topic, key, partition)
        found = self._partition(topic, where)
        offset = len(found.entries)
        found.entries.append(LogRecord(offset, self.clock.now_ms, key, value, list(headers)))
        position = Position(topic, where, offset)
        self._order.append(position)
        return position

    def producer(self, transactional_id: str) -> MemoryTransactions:
        """Return a transactional producer; whoever had the id before is fenced.

        An open transaction of the one before is aborted, as `init_transactions` does.
        """
        epoch = self._epochs.get(transactional_id, -1) + 1
        self._epochs[transactional_id] = epoch
        before = self._open.pop(transactional_id, None)
        if before is not None:
            before.abort_for_successor()
        return MemoryTransactions(self, transactional_id, epoch)

    # ------------------------------------------------------------------ reading
    def read(self, place: Place, start: int, end: int, /) -> Iterator[list[LogRecord]]:
        """See `LogReader.read`."""
        found = self._partition(*place)
        stop = min(end, found.stable_end)
        for at in range(max(start, found.start), stop, _LIST_MAX):
            chunk = found.entries[at : min(at + _LIST_MAX, stop)]
            records = [record for record in chunk if record is not None]
            if records:
                yield records

    def fetch(self, topic: str, partition: int, start: int, limit: int) -> list[LogRecord]:
        """Return at most `limit` committed records at or after offset `start`."""
        found = self._partition(topic, partition)
        stop = found.stable_end
        if start >= stop:
            return _NO_RECORDS
        records: list[LogRecord] = []
        for at in range(max(start, found.start), stop):
            record = found.entries[at]
            if record is not None:
                records.append(record)
                if len(records) == limit:
                    break
        return records

    def spans(self, places: Collection[Place], /) -> dict[Place, Span]:
        """See `LogReader.spans`."""
        return {place: self._span(place) for place in places}

    def _span(self, place: Place) -> Span:
        found = self._partition(*place)
        return Span(found.start, found.stable_end)

    def offset_at(self, place: Place, timestamp_ms: int, /) -> int:
        """See `LogReader.offset_at`."""
        found = self._partition(*place)
        for at in range(found.start, found.stable_end):
            record = found.entries[at]
            if record is not None and record.timestamp >= timestamp_ms:
                return at
        return found.stable_end

    def committed(self, group: str, topic: str, partitions: Collection[int], /) -> dict[int, int]:
        """See `LogReader.committed`."""
        return {
            partition: offset
            for partition in partitions
            if (offset := self._groups.get((group, topic, partition))) is not None
        }

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit a group's offset outside any transaction, as edges do."""
        self._groups[group, topic, partition] = offset

    def history(self, *topics: str) -> Iterator[tuple[Position, LogRecord]]:
        """Yield the committed records of topics over all partitions, in the order of appending."""
        for position in self._order:
            if position.topic not in topics:
                continue
            found = self._partition(position.topic, position.partition)
            record = found.entries[position.offset]
            if record is not None and position.offset < found.stable_end:
                yield position, record


class MemoryTransactions:
    """A transactional producer.  Every call raises `Fenced` once the id has a newer one."""

    def __init__(self, kafka: MemoryKafka, transactional_id: str, epoch: int) -> None:
        self._kafka = kafka
        self._id = transactional_id
        self._epoch = epoch
        self._written: list[Position] = []
        self._offsets: list[tuple[tuple[str, str, int], int]] = []

    def _check(self) -> None:
        newest = self._kafka._epochs[self._id]  # noqa: SLF001 - two halves of one thing
        if newest != self._epoch:
            raise Fenced(f"{self._id}: epoch {self._epoch} was fenced by epoch {newest}")

    def begin(self) -> None:
        """Open a transaction."""
        self._check()
        self._written, self._offsets = [], []
        self._kafka._open[self._id] = self  # noqa: SLF001

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> None:
        """Append one record; nobody sees it before the commit."""
        self._check()
        position = self._kafka._append(topic, value, key, headers, partition)  # noqa: SLF001
        self._written.append(position)
        found = self._kafka._partition(position.topic, position.partition)  # noqa: SLF001
        found.open_since.setdefault(self._id, position.offset)

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit a group's offset with the transaction."""
        self._check()
        self._offsets.append(((group, topic, partition), offset))

    def commit(self) -> None:
        """Make everything visible at once."""
        self._check()
        self._kafka._groups.update(self._offsets)  # noqa: SLF001
        self._end()

    def abort_for_successor(self) -> None:
        """Take everything back: the id's next owner has come."""
        for position in self._written:
            found = self._kafka._partition(position.topic, position.partition)  # noqa: SLF001
            found.entries[position.offset] = None
        self._end()

    def _end(self) -> None:
        """Write the end marker into every partition that the transaction touched."""
        for topic, partition in sorted({(each.topic, each.partition) for each in self._written}):
            found = self._kafka._partition(topic, partition)  # noqa: SLF001
            del found.open_since[self._id]
            found.entries.append(None)
        self._kafka._open.pop(self._id, None)  # noqa: SLF001
        self._written, self._offsets = [], []


def header(headers: Headers, name: str) -> str | None:
    """Return the text of the last header of that name, or None."""
    found: str | None = None
    for each, content in headers:
        if each == name:
            found = content.decode(errors="replace")
    return found
