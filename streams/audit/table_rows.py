"""The rows of a stage's table as its changelog has them: true from any host, whoever owns them.

Only committed rows are seen, so that they are those of some moment between two transactions of each
partition.

Source: DESIGN "The stage runtime", State.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from streams.audit.log import LogReader, LogRecord, Place, Span
from streams.codec import Codec
from streams.engine import POSITION_KEY, Standing, read_standing
from topology.model import Stage

__all__ = [
    "PartitionStanding",
    "TableRow",
    "newest_rows",
    "partition_rows",
    "standings",
    "table_rows",
]

_TAIL: Final = 1_000
"""Records of a changelog that are looked at first, from its end."""

_GROWTH: Final = 8
"""How much more is looked at each time."""


class TableRow(NamedTuple):
    """A row, decoded, of one partition."""

    partition: int
    key: str
    value: dict[str, Any]


class PartitionStanding(NamedTuple):
    """What is told of a partition's rows, and the part of its changelog that this is true of.

    `standing` is None where the last transaction told nothing: it was an earlier build's.
    """

    place: Place
    span: Span
    standing: Standing | None


def table_rows(reader: LogReader, codec: Codec, stage: Stage, *prefixes: str) -> Iterator[TableRow]:
    """Yield a stage's rows whose keys start with one of these, by partition and key.

    Cost: the changelog is read whole; one partition's rows of these prefixes are held, encoded.
    """
    for place, span in _spans(reader, stage).items():
        yield from partition_rows(reader, codec, place, span, *prefixes)


def partition_rows(
    reader: LogReader, codec: Codec, place: Place, span: Span, *prefixes: str
) -> Iterator[TableRow]:
    """Yield the rows of one partition as `table_rows` does; `place` is of its changelog."""
    starts = tuple(prefix.encode() for prefix in prefixes)
    latest: dict[bytes, bytes] = {}
    for records in reader.read(place, *span):
        for record in records:
            if record.key is None or not record.key.startswith(starts):
                continue
            if record.value is None:
                latest.pop(record.key, None)
            else:
                latest[record.key] = record.value
    for key in sorted(latest):
        yield TableRow(place[1], key.decode(), codec.decode(latest[key])[1])


def standings(reader: LogReader, stage: Stage) -> Iterator[PartitionStanding]:
    """Yield what the last transaction of each partition told of its rows; by partition.

    Cost: the last record of each changelog is read, with some before it.
    """
    for place, span in _spans(reader, stage).items():
        found = _last_position(reader, place, span)
        standing: Standing | None = {} if found is None else read_standing(found.headers)
        yield PartitionStanding(place, span, standing)


def _spans(reader: LogReader, stage: Stage) -> dict[Place, Span]:
    topic = stage.changelog
    places = [(topic, partition) for partition in range(reader.partitions(topic))]
    return reader.spans(places) if places else {}


def _last_position(reader: LogReader, place: Place, span: Span) -> LogRecord | None:
    for records in _from_the_end(reader, place, span, span.end - span.start):
        for record in reversed(records):
            if record.key == POSITION_KEY:
                return record
    return None


def newest_rows(
    reader: LogReader, codec: Codec, at: PartitionStanding, prefix: str, *, within: int
) -> Iterator[TableRow]:
    """Yield the rows of one partition whose keys start with `prefix`, those written last first.

    Args:  within: how far before its end the changelog is looked at, offsets; older rows are left
           out.
    Cost:  as much is read as is asked for; the keys are held.
    """
    start, seen = prefix.encode(), set[bytes]()
    for records in _from_the_end(reader, at.place, at.span, within):
        for record in reversed(records):
            key = record.key
            if key is None or not key.startswith(start) or key in seen:
                continue
            seen.add(key)
            if record.value is not None:
                yield TableRow(at.place[1], key.decode(), codec.decode(record.value)[1])


def _from_the_end(
    reader: LogReader, place: Place, span: Span, within: int
) -> Iterator[list[LogRecord]]:
    """Yield runs of records, the last run first, each in order and longer than the one before."""
    least, first, size = max(span.start, span.end - within), span.end, _TAIL
    while first > least:
        end, first = first, max(least, first - size)
        yield [record for records in reader.read(place, first, end) for record in records]
        size *= _GROWTH
