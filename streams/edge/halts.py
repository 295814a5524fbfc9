"""Which partitions of a stage are halted, as the log tells any host that asks.

A member that halts a partition says so once; that holds until the stage commits something beyond
the record, whoever owns the partition and whether anybody does.  Only partitions with records that
are not folded are looked at.

Source: DESIGN "Failure".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import cast

from streams.audit.log import LogReader, LogRecord, Place, Span
from streams.codec import Codec
from streams.core.wire import PartitionHalted
from topology.model import Stage
from topology.topics import LIFECYCLE, PARTITION_HALTED

__all__ = ["halted_partitions"]

_SKEW_MS = 3_600_000
"""Notices bear their member's clock, mailboxes the broker's: so far apart they may be."""

_KIND = PARTITION_HALTED.encode()


def halted_partitions(
    log: LogReader, codec: Codec, stages: Collection[Stage]
) -> tuple[PartitionHalted, ...]:
    """Return what halts each partition that stands still, by stage and partition.

    Raises: BrokerError.
    """
    if not log.partitions(LIFECYCLE):
        return ()
    return tuple(halt for stage in stages for halt in _halts(log, codec, stage))


def _halts(log: LogReader, codec: Codec, stage: Stage) -> Iterator[PartitionHalted]:
    partitions = range(log.partitions(stage.source))
    committed = log.committed(stage.group, stage.source, partitions)
    spans = log.spans([(stage.source, partition) for partition in partitions])
    for place, (start, end) in spans.items():
        unread = Span(max(committed.get(place[1], 0), start), end)
        halt = _halt(log, codec, stage, place, unread)
        if halt is not None:
            yield halt


def _halt(
    log: LogReader, codec: Codec, stage: Stage, place: Place, unread: Span
) -> PartitionHalted | None:
    """Return what halts a partition with these records unread: its last notice, while it holds."""
    first = _first(log, place, unread)
    notices = (LIFECYCLE, place[1])
    if first is None or place[1] >= log.partitions(LIFECYCLE):
        return None
    start = log.offset_at(notices, first.timestamp - _SKEW_MS)
    [end] = [span.end for span in log.spans([notices]).values()]
    found: PartitionHalted | None = None
    for records in log.read(notices, start, end):
        for record in records:
            said = _notice(codec, record)
            # One about a record that is folded by now is over.
            if said is not None and said["stage"] == stage.name and said["offset"] == first.offset:
                found = said
    return found


def _first(log: LogReader, place: Place, unread: Span) -> LogRecord | None:
    """Return the record that the stage folds next; offsets alone may be ends of transactions."""
    for records in log.read(place, *unread):
        return records[0]
    return None


def _notice(codec: Codec, record: LogRecord) -> PartitionHalted | None:
    kinds: Mapping[str, bytes] = dict(record.headers)
    if kinds.get("kind") != _KIND:
        return None
    # What cannot be read may be of a later release: another host knows.
    return cast("PartitionHalted | None", codec.decode_as(PARTITION_HALTED, record.value))
