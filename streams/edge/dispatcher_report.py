"""What the dispatcher has in hand, from what is told beside the positions of inbox and dispatch.

It is true from any host, and takes no longer when changelogs are long: only their ends are read.

| count | of |
|---|---|
| `inbox_envelopes_written` | events: new ones, repeats, and those that inbox has not folded |
| `inbox_claims_written` | values of a trigger's `dedupe_key` that were claimed, ever |
| `inbox_fast_path_hits` | events whose delivery or id inbox had seen: they went no further |
| `inbox_durable_hits` | events whose value of a trigger's `dedupe_key` was claimed |
| `inbox_duplicates_rejected` | both |
| `inbox_active_entries` | deliveries, ids and values that are remembered |
| `inbox_expired_entries` | those that were, and are not any more |

Source: SEMANTICS 5.5.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from streams.audit.log import LogReader
from streams.audit.table_rows import PartitionStanding, newest_rows, partition_rows, standings
from streams.codec import Codec, DecodeError
from streams.core.dedupe_counts import DEDUPE_ROW
from streams.engine import Standing
from topology import TOPOLOGY

__all__ = ["dispatcher_report"]

_AT_INVOKER = frozenset({"evaluating", "invoked", "running"})
_RETRYING = frozenset({"waiting", "returned", "deferred"})

LISTED_MAX = 1_000
"""Dispatches and envelopes that are named, of dispatches the newest; the counts are of all."""


_LOOKED_AT_MAX = 50_000
"""Records of the changelogs that are looked at for names: those who wait for long lie far back."""

_NOTHING: Mapping[str, int] = {}


@dataclass(slots=True)
class _Counts:
    """What the partitions of a stage have in hand and have counted, together."""

    statuses: Counter[str] = field(default_factory=Counter[str])
    repeats: Counter[str] = field(default_factory=Counter[str])

    def take(self, standing: Standing) -> None:
        """Add what one partition tells."""
        self.statuses.update(standing.get("d", _NOTHING))
        self.repeats.update(standing.get(DEDUPE_ROW, _NOTHING))

    def in_one_of(self, statuses: Collection[str]) -> int:
        """Return how many dispatches have one of these statuses."""
        return sum(self.statuses[status] for status in statuses)

    @property
    def remembered(self) -> int:
        """How many deliveries, ids or values were new: they are remembered, or were."""
        return self.repeats["active"] + self.repeats["forgotten"]


def dispatcher_report(log: LogReader, codec: Codec) -> dict[str, Any]:
    """Return counts and names of what is in flight, waits for a retry, or is not folded yet.

    Raises: BrokerError.
    """
    # First: what is folded meanwhile is better counted twice than not at all.
    stranded, stranded_total = _stranded(log, codec)
    inbox, dispatch = _Counts(), _Counts()
    for at in standings(log, TOPOLOGY.stage("inbox")):
        inbox.take(_told(log, codec, at))
    partitions = [
        at._replace(standing=_told(log, codec, at))
        for at in standings(log, TOPOLOGY.stage("dispatch"))
    ]
    for at in partitions:
        dispatch.take(at.standing or {})
    in_flight, to_retry = dispatch.in_one_of(_AT_INVOKER), dispatch.in_one_of(_RETRYING)
    duplicates = inbox.repeats["duplicates"], dispatch.repeats["duplicates"]
    return {
        "dispatcher_in_flight": in_flight,
        "dispatcher_retry_queue_depth": to_retry,
        "inferred_in_flight": in_flight,
        "inferred_pending_retries": to_retry,
        "inbox_claims_written": dispatch.remembered,
        "inbox_envelopes_written": inbox.remembered + duplicates[0] + stranded_total,
        "inbox_duplicates_rejected": sum(duplicates),
        "inbox_fast_path_hits": duplicates[0],
        "inbox_durable_hits": duplicates[1],
        "inbox_expired_entries": inbox.repeats["forgotten"] + dispatch.repeats["forgotten"],
        "inbox_active_entries": inbox.repeats["active"] + dispatch.repeats["active"],
        "in_flight_dispatches": _names(log, codec, partitions, _AT_INVOKER),
        "pending_retries": _names(log, codec, partitions, _RETRYING),
        "stranded_envelopes": stranded,
        "stranded_envelopes_total": stranded_total,
    }


def _told(log: LogReader, codec: Codec, at: PartitionStanding) -> Standing:
    """Return what a partition's rows come to; they are read where an earlier build wrote last."""
    if at.standing is not None:
        return at.standing
    statuses: Counter[str] = Counter()
    said: Standing = {"d": statuses}
    for _, key, value in partition_rows(log, codec, at.place, at.span, "d:", DEDUPE_ROW):
        if key == DEDUPE_ROW:
            said[key] = value
        else:
            statuses[value["status"]] += 1
    return said


def _names(
    log: LogReader,
    codec: Codec,
    partitions: Sequence[PartitionStanding],
    statuses: Collection[str],
) -> list[str]:
    """Return names of dispatches with one of these statuses, of many the newest."""
    counts = [
        sum((at.standing or {}).get("d", _NOTHING).get(status, 0) for status in statuses)
        for at in partitions
    ]
    within = _LOOKED_AT_MAX // max(1, sum(map(bool, counts)))
    names: list[str] = []
    for at, count in zip(partitions, counts, strict=True):
        if not count:
            continue
        rows = newest_rows(log, codec, at, "d:", within=within)
        fitting = (row.value for row in rows if row.value["status"] in statuses)
        names += [
            f"{row['binding_key']}:{row['event_id']}:{row['attempt']}"
            for row in islice(fitting, min(count, LISTED_MAX))
        ]
    return sorted(names)[:LISTED_MAX]


def _stranded(log: LogReader, codec: Codec) -> tuple[list[dict[str, Any]], int]:
    """Return envelopes that inbox has not folded, the first of them by name, and their number."""
    inbox = TOPOLOGY.stage("inbox")
    numbers = range(log.partitions(inbox.source))
    known = log.committed(inbox.group, inbox.source, numbers)
    found: list[dict[str, Any]] = []
    total = 0
    spans = log.spans([(inbox.source, number) for number in numbers])
    for place, span in spans.items():
        for records in log.read(place, max(known.get(place[1], 0), span.start), span.end):
            for record in records:
                told = _envelope(codec, record.offset, record.value)
                total += told is not None
                if told is not None and len(found) < LISTED_MAX:
                    found.append(told)
    return found, total


def _envelope(codec: Codec, offset: int, value: bytes | None) -> dict[str, Any] | None:
    try:
        schema, said = codec.decode(value or b"")
    except DecodeError:
        return None
    if schema != "event_ingested":
        return None
    event: Mapping[str, Any] = said["event"]
    return {
        "inbox_offset": offset,
        "event_id": event["id"],
        "trigger_id": said["trigger_id"],
        "binding_version": said["binding_version"],
        "provider": event["provider"],
        "kind": event["kind"],
        "received_at": event["received_at"],
        "age_ms": _age_ms(event["received_at"]),
    }


def _age_ms(received_at: str) -> int | None:
    """Return an age by this machine's clock; None for what is no time."""
    try:
        received_ms = int(datetime.fromisoformat(received_at).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None
    return max(0, time.time_ns() // 1_000_000 - received_ms)
