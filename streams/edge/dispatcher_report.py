"""What the dispatcher has in hand, from its rows and the inbox's place: true from any host.

| count | of |
|---|---|
| `inbox_fast_path_hits` | events whose delivery or id inbox had seen: they went no further |
| `inbox_durable_hits` | events whose value of a trigger's `dedupe_key` was claimed |
| `inbox_duplicates_rejected` | both |
| `inbox_active_entries` | deliveries, ids and values that are remembered |
| `inbox_expired_entries` | those that were, and are not any more |

Source: SEMANTICS 5.5.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from streams.audit.kafka_log import KafkaLog
from streams.audit.table_rows import busy_row, table_rows
from streams.codec import Codec, DecodeError
from streams.core.dedupe_counts import DEDUPE_ROW
from streams.core.wire import RowDedupe, RowDispatch
from topology import TOPOLOGY

__all__ = ["dispatcher_report"]

_AT_INVOKER = frozenset({"evaluating", "invoked", "running"})
_RETRYING = frozenset({"waiting", "returned", "deferred"})

LISTED_MAX = 1_000
"""Dispatches and envelopes that are named; the counts are of all."""


@dataclass(slots=True)
class _Repeats:
    """What the partitions of a stage have counted, together."""

    duplicates: int = 0
    forgotten: int = 0
    active: int = 0

    def add(self, row: RowDedupe) -> None:
        """Add what one partition has counted."""
        self.duplicates += row["duplicates"]
        self.forgotten += row["forgotten"]
        self.active += row["active"]


def dispatcher_report(log: KafkaLog, codec: Codec) -> dict[str, Any]:
    """Return counts and names of what is in flight, waits for a retry, or is not folded yet.

    Raises: BrokerError.
    """
    running: list[str] = []
    retrying: list[str] = []
    inbox = _Repeats()
    for _, _, value in busy_row(log, codec, TOPOLOGY.stage("inbox"), DEDUPE_ROW):
        inbox.add(cast("RowDedupe", value))
    claims = _Repeats()
    for _, key, value in table_rows(log, codec, TOPOLOGY.stage("dispatch"), "d:", DEDUPE_ROW):
        if key == DEDUPE_ROW:
            claims.add(cast("RowDedupe", value))
            continue
        row = cast("RowDispatch", value)
        name = f"{row['binding_key']}:{row['event_id']}:{row['attempt']}"
        if row["status"] in _AT_INVOKER:
            running.append(name)
        elif row["status"] in _RETRYING:
            retrying.append(name)
    stranded, stranded_total = _stranded(log, codec)
    return {
        "dispatcher_in_flight": len(running),
        "dispatcher_retry_queue_depth": len(retrying),
        "inferred_in_flight": len(running),
        "inferred_pending_retries": len(retrying),
        "inbox_claims_written": _appended(log, "trigger.inbox.claims"),
        "inbox_envelopes_written": _appended(log, "trigger.inbox.envelopes"),
        "inbox_duplicates_rejected": inbox.duplicates + claims.duplicates,
        "inbox_fast_path_hits": inbox.duplicates,
        "inbox_durable_hits": claims.duplicates,
        "inbox_expired_entries": inbox.forgotten + claims.forgotten,
        "inbox_active_entries": inbox.active + claims.active,
        "in_flight_dispatches": sorted(running)[:LISTED_MAX],
        "pending_retries": sorted(retrying)[:LISTED_MAX],
        "stranded_envelopes": stranded,
        "stranded_envelopes_total": stranded_total,
    }


def _appended(log: KafkaLog, topic: str) -> int:
    """Return how many offsets a topic has given out: its records, and the ends of transactions."""
    places = [(topic, number) for number in range(log.partitions(topic))]
    return sum(span.end for span in log.spans(places).values())


def _stranded(log: KafkaLog, codec: Codec) -> tuple[list[dict[str, Any]], int]:
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
