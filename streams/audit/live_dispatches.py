"""Dispatches that are on their way, with their events, as the log has them.

Source: DESIGN "The stage runtime", State.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from streams.audit.log import LogReader
from streams.audit.table_rows import table_rows
from streams.codec import Codec
from streams.core.wire import RowDispatch, TriggerEvent
from topology.model import Stage

__all__ = ["LiveDispatch", "live_dispatches"]


class LiveDispatch(NamedTuple):
    """A live dispatch's row without its event, the event, and the partition that it lives in."""

    partition: int
    row: RowDispatch
    event: TriggerEvent


def live_dispatches(reader: LogReader, codec: Codec, stage: Stage) -> Iterator[LiveDispatch]:
    """Yield every live dispatch, by partition; `stage` is the dispatch stage."""
    waiting: dict[tuple[int, str], RowDispatch] = {}
    for partition, key, value in table_rows(reader, codec, stage, "d:", "e:"):
        prefix, _, dispatch_id = key.partition(":")
        if prefix == "d":  # a partition's rows come in the order of their keys: `d:` before `e:`
            row = cast("RowDispatch", value)
            if row["event"] is not None:
                yield LiveDispatch(partition, {**row, "event": None}, row["event"])
            else:
                waiting[partition, dispatch_id] = row
        else:
            row = waiting.pop((partition, dispatch_id), None)
            if row is not None:
                yield LiveDispatch(partition, row, value["event"])
