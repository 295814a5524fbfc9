"""The dead letters that wait for somebody, and the bodies of those that are to be seen or replayed.

Entries are the dispatch stage's rows, true from any host; bodies are the `dlq_moved` records in
`trigger.dlq`, which are keyed by their event.

Source: SEMANTICS 2.7.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from streams.audit.log import LogReader, LogRecord
from streams.audit.table_rows import table_rows
from streams.codec import Codec
from streams.core.placement import partition_of
from streams.core.wire import DlqMoved, RowDlq
from topology.model import Stage

__all__ = ["Body", "bodies_of", "entries"]

DLQ = "trigger.dlq"


class Body(NamedTuple):
    """A dead letter as it was moved last, as far as the log still has it."""

    moved: DlqMoved
    traceparent: str | None


def entries(reader: LogReader, codec: Codec, stage: Stage) -> list[RowDlq]:
    """Return every entry, by event id, then entry id; `stage` is the dispatch stage."""
    found = [cast("RowDlq", row.value) for row in table_rows(reader, codec, stage, "q:")]
    return sorted(found, key=lambda entry: (entry["event_id"], entry["entry_id"]))


def bodies_of(reader: LogReader, codec: Codec, wanted: Iterable[RowDlq]) -> dict[str, Body]:
    """Return bodies by entry id; the event's own rather than that of a replay that failed.

    Cost: the partitions of `trigger.dlq` that have them are read; every body found is held.
    """
    count = reader.partitions(DLQ)
    places: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for entry in wanted if count else ():
        replays = [note["event_id"] for note in entry["history"] if note["status"] == "replay_dlq"]
        for event_id in (entry["event_id"], *replays):
            place = partition_of(event_id.encode(), count)
            places[place][entry["entry_id"]] = entry["event_id"]
    found: dict[str, Body] = {}
    spans = reader.spans([(DLQ, partition) for partition in sorted(places)])
    for place, span in spans.items():
        for records in reader.read(place, *span):
            _collect(codec, records, places[place[1]], found)
    return found


def _collect(
    codec: Codec, records: Sequence[LogRecord], wanted: dict[str, str], found: dict[str, Body]
) -> None:
    for record in records:
        headers = dict(record.headers)
        if headers.get("kind") != b"dlq_moved":
            continue
        moved = cast("DlqMoved | None", codec.decode_as("dlq_moved", record.value))
        if moved is None or (entry_id := moved["entry_id"]) not in wanted:
            continue
        known = found.get(entry_id)
        if known is None or known.moved["event"]["id"] != wanted[entry_id]:
            traceparent = headers.get("traceparent")
            text = None if traceparent is None else traceparent.decode(errors="replace")
            found[entry_id] = Body(moved, text)
