"""Microseconds per record of the engine alone: decode, fold, encode, hash; no Kafka.

One stage whose input has twelve Avro fields and four headers, and which answers each record with one output and one row.
Prints one JSON object; `python -m bench.engine [--records N] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schemas.load import Schema, SchemaSet, make_schema
from streams.codec import Codec
from streams.core.record import Output, Record
from streams.core.state import Answer, Fold, State
from streams.engine import BoundStage, Memory, fold_batch, settle
from topology import RowType, Stage, Table, Topic, Topology
from topology.model import TopicRole

BATCH_RECORDS = 1_000
KEYS = 5_000
NOW_MS = 1_764_000_000_000


@dataclass(slots=True)
class Fetched:
    """A mailbox record as a consumer hands it over."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def bench_schemas() -> SchemaSet:
    """The shipped schemas and two of the benchmark's own."""
    order_fields: list[dict[str, Any]] = [
        {"name": "order_id", "type": "string"},
        {"name": "customer", "type": "string"},
        {"name": "tenant", "type": ["null", "string"], "default": None},
        {"name": "status", "type": {"type": "enum", "name": "S", "symbols": ["open", "paid", "x"]}},
        {"name": "amount", "type": "long"},
        {"name": "quantity", "type": "int"},
        {"name": "created_ms", "type": "long"},
        {"name": "updated_ms", "type": ["null", "long"], "default": None},
        {"name": "currency", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": "string"},
        {"name": "paid", "type": "boolean"},
    ]
    row_fields: list[dict[str, Any]] = [
        {"name": "count", "type": "long"},
        {"name": "last_offset", "type": "long"},
    ]
    own = {
        stem: _schema(stem, name, fields)
        for stem, name, fields in (
            ("bench_order", "BenchOrder", order_fields),
            ("row_bench", "RowBench", row_fields),
        )
    }
    return SchemaSet({**SchemaSet.load(), **own})


def _schema(stem: str, name: str, fields: list[dict[str, Any]]) -> Schema:
    definition = {"type": "record", "name": name, "namespace": "harn.streams", "fields": fields}
    return make_schema(stem, definition)


def bench_topology() -> Topology:
    """One stage from `bench.in` to `bench.out` with one row type."""
    stage = Stage(
        name="bench",
        version=1,
        role="bench",
        source="bench.in",
        sinks=("bench.out",),
        quarantine="bench.dlq",
        doc="Counts orders by customer.",
        table=Table(name="t", rows=(RowType(prefix="c", schema="row_bench", doc="A count."),)),
    )
    order = (("order", "bench_order"),)
    quarantine = (("record_quarantined", "record_quarantined"),)
    topics = (
        Topic(name="bench.in", role=TopicRole.MAILBOX, key="customer", doc="Orders.", kinds=order),
        Topic(name="bench.out", role=TopicRole.OUTPUT, key="customer", doc="Same.", kinds=order),
        Topic(name="bench.dlq", role=TopicRole.OUTPUT, key="-", doc="Bad.", kinds=quarantine),
    )
    return Topology(topics=topics, stages=(stage,))


def count_by_customer(state: State, record: Record, /) -> Answer:
    """One output and one row per record."""
    order = record.value
    key = f"c:{order['customer']}"
    row = state.rows.get(key)
    count = 1 if row is None else row["count"] + 1
    state.rows.put(key, {"count": count, "last_offset": record.offset})
    paid = {**order, "paid": True, "updated_ms": state.now_ms}
    return (Output("bench.out", "order", order["customer"], paid),)


def make_log(codec: Codec, records: int) -> list[Fetched]:
    """Orders of `KEYS` customers with the headers that a stage's output carries."""
    encode = codec.encoder("bench_order")
    log: list[Fetched] = []
    for offset in range(records):
        customer = f"customer-{offset * 7919 % KEYS:06d}"
        order = {
            "order_id": f"order-{offset:012d}",
            "customer": customer,
            "tenant": "acme",
            "status": "open",
            "amount": offset * 100,
            "quantity": offset % 7,
            "created_ms": NOW_MS + offset,
            "updated_ms": None,
            "currency": "EUR",
            "tags": ["new", "web"],
            "note": "leave it at the door, please; the bell does not work",
            "paid": False,
        }
        headers = [
            ("kind", b"order"),
            ("cause", f"bench.source/3/{offset}/0".encode()),
            ("fold", b"source@1"),
            ("tenant_id", b"acme"),
        ]
        fetched = Fetched(offset, NOW_MS + offset, customer.encode(), encode(order), headers)
        log.append(fetched)
    return log


def fold_log(stage: BoundStage, log: list[Fetched]) -> float:
    """Fold the log in batches; seconds of processor time."""
    memory = Memory(stage, 0)
    started = time.process_time()
    for at in range(0, len(log), BATCH_RECORDS):
        settle(memory, fold_batch(memory, log[at : at + BATCH_RECORDS]))
    return time.process_time() - started


def main() -> None:
    """Print `{name, value, unit, target, holds, runs}`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    codec = Codec(bench_schemas())
    topology = bench_topology()
    stage = BoundStage(
        topology.stage("bench"), Fold(on_record=count_by_customer), topology, codec, 1
    )
    log = make_log(codec, options.records)
    measure: Callable[[], float] = lambda: fold_log(stage, log) / len(log) * 1e6  # noqa: E731
    runs = sorted(round(measure(), 2) for _ in range(options.rounds))
    value = statistics.median(runs)
    row = {
        "name": "engine: fold_batch, 12 Avro fields, one output, one row",
        "value": value,
        "unit": "us/record",
        "target": 18,
        "holds": value <= 18,
        "runs": runs,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
