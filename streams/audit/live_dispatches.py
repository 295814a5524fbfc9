"""Dispatches that are on their way, with their events, as the log has them; what each waits for.

Source: DESIGN "The stage runtime", State.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from streams.audit.explain import EventStory
from streams.audit.log import LogReader
from streams.audit.table_rows import table_rows
from streams.codec import Codec
from streams.core.clock import rfc3339
from streams.core.wire import DispatchStatus, RowDispatch, TriggerEvent
from topology.model import Stage

__all__ = ["LiveDispatch", "live_dispatches", "standing_of", "tell_standings"]


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


def tell_standings(reader: LogReader, codec: Codec, stage: Stage, story: EventStory) -> None:
    """Note in a story how its dispatches stand that have not ended."""
    if all(dispatch.outcome != "live" for dispatch in story.dispatches.values()):
        return
    for _, row, _ in live_dispatches(reader, codec, stage):
        dispatch = story.dispatches.get(row["dispatch_id"])
        if dispatch is not None:
            dispatch.standing = standing_of(row)


def standing_of(row: RowDispatch, /) -> str:
    """Say what a live dispatch waits for, and what it has been through."""
    said = [_waits_for(row)]
    if row["returns"]:
        said.append(f"given back {row['returns']} times")
    if row["losses"]:
        said.append(f"{row['losses']} invokers were lost while they ran it")
    if row["cancelled"] is not None:
        said.append(row["cancelled"])
    return "; ".join(said)


def _waits_for(row: RowDispatch) -> str:
    due_ms = row["due_ms"]
    due = "" if due_ms is None else rfc3339(due_ms)
    what = f"attempt {row['attempt']}" if row["attempt"] else "its predicate"
    said: dict[DispatchStatus, str] = {
        "evaluating": "its predicate is before the invokers",
        "invoked": f"{what} is before the invokers",
        "running": f"{what} runs on {row['invoker_id']}, leased until {due}",
        "waiting": f"{what} is due at {due}",
        "returned": f"{what} is issued again at {due}",
        "gated": f"it waits at gate {row['gate']}" + (f" until {due}" if due else ""),
        "parked": f"it is parked, as its destination fails, until {due} at most",
        "deferred": f"it waits for its budget until {due}",
    }
    return said.get(row["status"], "a later release knows how it stands")
