"""What the stage benchmarks measure: orders of customers, counted by a stage of their own.

Twelve Avro fields and four headers in, one output and one row for each.  The declarations take a
name, so that each round starts without rows, offsets or members of the round before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.load import Schema, SchemaSet, make_schema
from streams.codec import Codec
from streams.core.record import Output, Record
from streams.core.state import Answer, Fold, State
from streams.engine import BoundStage
from topology import TOPOLOGY, RowType, Stage, Table, Topic, Topology
from topology.model import Cleanup, RetentionRule, TopicRole

OUTPUT = "bench.out"
JOURNAL = "audit.journal"
CUSTOMERS = 5_000
PARTITIONS = 4
NOW_MS = 1_764_000_000_000
NEVER_MS = NOW_MS + 10_000_000_000_000
"""Due time of rows whose timer must not fire while it is measured."""

Headers = list[tuple[str, bytes]]

_ORDER_FIELDS: list[dict[str, Any]] = [
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
_ROW_FIELDS: list[dict[str, Any]] = [
    {"name": "count", "type": "long"},
    {"name": "last_offset", "type": "long"},
]
_WIDE_ROW_FIELDS: list[dict[str, Any]] = [
    *_ROW_FIELDS,
    {"name": "due_ms", "type": ["null", "long"], "default": None},
    {"name": "note", "type": "string"},
]


def bench_codec() -> Codec:
    """The codec of the shipped schemas and the benchmark's own."""
    own = {
        stem: _schema(stem, name, fields)
        for stem, name, fields in (
            ("bench_order", "BenchOrder", _ORDER_FIELDS),
            ("row_bench", "RowBench", _ROW_FIELDS),
            ("row_wide", "RowWide", _WIDE_ROW_FIELDS),
        )
    }
    return Codec(SchemaSet({**SchemaSet.load(), **own}))


def _schema(stem: str, name: str, fields: list[dict[str, Any]]) -> Schema:
    definition = {"type": "record", "name": name, "namespace": "harn.streams", "fields": fields}
    return make_schema(stem, definition)


def mailbox_of(name: str) -> str:
    """The mailbox of the stage of that name, unless it shares another's."""
    return f"{name}.in"


def bench_topology(name: str, *, mailbox: str | None = None, timers: bool = False) -> Topology:
    """One stage `name` from its mailbox to the output; with `timers`, its wide rows are timers."""
    source = mailbox or mailbox_of(name)
    wide = RowType(
        prefix="w", schema="row_wide", doc="A row of size.", due_field="due_ms" if timers else None
    )
    count = RowType(prefix="c", schema="row_bench", doc="Orders of a customer.")
    stage = Stage(
        name=name,
        version=1,
        role=name,
        source=source,
        sinks=(OUTPUT,),
        quarantine="bench.dlq",
        doc="Counts orders by customer.",
        table=Table(name="counts", rows=(count, wide)),
    )
    order = (("order", "bench_order"),)
    quarantine = (("record_quarantined", "record_quarantined"),)
    topics = (
        Topic(name=source, role=TopicRole.MAILBOX, key="customer", doc="Orders.", kinds=order),
        Topic(name=OUTPUT, role=TopicRole.OUTPUT, key="customer", doc="Paid.", kinds=order),
        Topic(name="bench.dlq", role=TopicRole.OUTPUT, key="-", doc="Bad.", kinds=quarantine),
        Topic(
            name=stage.changelog,
            role=TopicRole.CHANGELOG,
            key="row key",
            doc="Rows.",
            cleanup=Cleanup.COMPACT,
            retention=RetentionRule.FOREVER,
            co_partitioned_with=source,
        ),
        TOPOLOGY.topic(JOURNAL),
        TOPOLOGY.topic("audit.checkpoints"),
    )
    return Topology(topics=topics, stages=(stage,))


def bench_stage(
    name: str, codec: Codec, *, mailbox: str | None = None, timers: bool = False
) -> BoundStage:
    """The stage of that name, bound to its fold."""
    topology = bench_topology(name, mailbox=mailbox, timers=timers)
    return BoundStage(
        topology.stage(name), Fold(on_record=count_by_customer), topology, codec, PARTITIONS
    )


def count_by_customer(state: State, record: Record, /) -> Answer:
    """One output and one row per record."""
    order = record.value
    key = f"c:{order['customer']}"
    row = state.rows.get(key)
    count = 1 if row is None else row["count"] + 1
    state.rows.put(key, {"count": count, "last_offset": record.offset})
    paid = {**order, "paid": True, "updated_ms": state.now_ms}
    return (Output(OUTPUT, "order", order["customer"], paid),)


def orders(codec: Codec, count: int) -> Iterator[tuple[bytes, bytes, Headers]]:
    """`count` orders as (key, value, headers): what another stage would have appended."""
    encode = codec.encoder("bench_order")
    for index in range(count):
        customer = f"customer-{index * 7919 % CUSTOMERS:06d}"
        order = order_of(f"order-{index:012d}", customer, index)
        headers = [
            ("kind", b"order"),
            ("cause", f"bench.source/3/{index}/0".encode()),
            ("fold", b"source@1"),
            ("tenant_id", b"acme"),
        ]
        yield customer.encode(), encode(order), headers


def order_of(order_id: str, customer: str, index: int) -> dict[str, Any]:
    """One order with all of its fields."""
    return {
        "order_id": order_id,
        "customer": customer,
        "tenant": "acme",
        "status": "open",
        "amount": index * 100,
        "quantity": index % 7,
        "created_ms": NOW_MS + index,
        "updated_ms": None,
        "currency": "EUR",
        "tags": ["new", "web"],
        "note": "leave it at the door, please; the bell does not work",
        "paid": False,
    }
