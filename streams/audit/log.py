"""The log as the auditor sees it: partitions with a start and an end, read in offset order.

The auditor knows Kafka through this interface only, so that it judges an in-memory log
(`MemoryLog`) and a cluster (`KafkaLog`) with the same code.

Source: DESIGN "Proof".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from operator import attrgetter
from typing import NamedTuple, Protocol

__all__ = ["Cursor", "Headers", "LogReader", "LogRecord", "Place", "Span"]

Headers = list[tuple[str, bytes]]
"""Headers of a record in their order."""

Place = tuple[str, int]
"""A topic and one of its partitions."""


class LogRecord(NamedTuple):
    """One record as it lies in the log; `timestamp` is ms since epoch, `value` None a tombstone."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Span(NamedTuple):
    """What a partition holds: offsets from `start` up to, not including, `end`."""

    start: int
    end: int


class LogReader(Protocol):
    """A log that can be read again and again; BrokerError when it is out of reach."""

    def partitions(self, topic: str, /) -> int:
        """How many partitions the topic has; 0 when there is no such topic."""
        ...

    def topic_names(self) -> frozenset[str]:
        """Return the names of all topics."""
        ...

    def spans(self, places: Collection[Place], /) -> dict[Place, Span]:
        """Return what each partition holds now.

        Everything written before the call lies before `end`, and each transaction with records
        there is decided when this returns: what a transaction wrote is there in full or not at all.
        """
        ...

    def read(self, place: Place, start: int, end: int, /) -> Iterator[list[LogRecord]]:
        """Yield the committed records with offsets in [start, end), in order, list by list."""
        ...

    def offset_at(self, place: Place, timestamp_ms: int, /) -> int:
        """Return the first offset at or after which all records are that young; the end if none."""
        ...

    def committed(self, group: str, topic: str, partitions: Collection[int], /) -> dict[int, int]:
        """Return the committed offsets of a group, once no transaction over them is open.

        A partition without one is left out.
        """
        ...


_OFFSET = attrgetter("offset")


class Cursor:
    """A place in one partition's records that only moves on."""

    __slots__ = ("_lists", "_pending")

    def __init__(self, lists: Iterator[list[LogRecord]]) -> None:
        self._lists = lists
        self._pending: list[LogRecord] = []

    def take_until(self, offset: int) -> list[LogRecord]:
        """Return the records before `offset` that were not taken yet."""
        taken: list[LogRecord] = []
        while True:
            pending = self._pending
            if not pending:
                following = next(self._lists, None)
                if following is None:
                    return taken
                self._pending = following
                continue
            if pending[-1].offset < offset:
                taken += pending
                self._pending = []
                continue
            cut = bisect_left(pending, offset, key=_OFFSET)
            taken += pending[:cut]
            self._pending = pending[cut:]
            return taken

    def __iter__(self) -> Iterator[LogRecord]:
        """Yield what was not taken yet, one by one."""
        while True:
            yield from self._drain()
            following = next(self._lists, None)
            if following is None:
                return
            self._pending = following

    def _drain(self) -> Iterator[LogRecord]:
        pending, self._pending = self._pending, []
        yield from pending
