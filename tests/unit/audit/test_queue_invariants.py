"""Queues judged on a log: every job that was folded is over or there."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.shape import Array, Nullable, Primitive, Shape
from streams.audit.queue_invariants import judge_queues
from streams.codec import Codec
from streams.testing.clock import VirtualClock
from streams.testing.memory_kafka import MemoryKafka
from tests.support.relayed import job
from topology.model import RowType, Stage, Table

CODEC = Codec()
STAGE = Stage(
    name="scheduler",
    version=1,
    role="scheduler",
    source="worker.requests",
    sinks=(),
    quarantine="trigger.dlq",
    doc="",
    table=Table(
        name="queues",
        rows=(
            RowType(prefix="q", schema="row_queue", doc=""),
            RowType(prefix="j", schema="row_job", doc=""),
        ),
    ),
)


class Log:
    """A log of one queue, `triage`, written by hand."""

    def __init__(self, *, partitions: int = 1) -> None:
        self.kafka = MemoryKafka(VirtualClock())
        counts = {STAGE.changelog: 1, "worker.queues": 1, "worker.triage.claims": 1}
        for name, count in {**counts, "worker.triage": partitions}.items():
            self.kafka.create(name, count)

    def job(self, number: int, partition: int = 0) -> None:
        self.kafka.append("worker.triage", job(number), partition=partition)

    def folded(self, *offsets: int) -> None:
        places = [
            {"source_partition": number, "next_offset": offset}
            for number, offset in enumerate(offsets)
        ]
        self.row("q:triage", "row_queue", {"queue": "triage", "shards": 1, "relayed": places})

    def waits(self, job_id: str) -> None:
        self.row(f"j:triage:{job_id}", "row_job", {"body": b""})

    def row(self, key: str, schema: str, value: dict[str, Any]) -> None:
        """Write a row; what a test does not say of it is nothing."""
        fields = CODEC.schemas[schema].shape.fields
        row = {each.name: value.get(each.name, nothing(each.shape)) for each in fields}
        self.kafka.append(STAGE.changelog, CODEC.encode(schema, row), key=key.encode())

    def purged(self, job_id: str) -> None:
        value = {"queue": "triage", "job_event_id": job_id, "purged_by": "x", "purged_at_ms": 1}
        self.kafka.append(
            "worker.triage.claims",
            CODEC.encode("job_purged", value),
            headers=[("kind", b"job_purged")],
        )

    def told(self) -> list[str]:
        [verdict] = judge_queues(self.kafka, CODEC, STAGE)
        return [f"{each.position}: {each.what}" for each in verdict.violations]


def nothing(shape: Shape) -> object:
    """The least value of a shape."""
    match shape:
        case Nullable():
            return None
        case Primitive(name="string"):
            return ""
        case Primitive(name="boolean"):
            return False
        case Array():
            return []
        case _:
            return 0


def test_a_job_that_is_over_there_or_not_folded_yet_is_not_missed() -> None:
    log = Log()
    for number in range(3):
        log.job(number)
    log.folded(2)
    log.waits("0")
    log.purged("1")
    assert log.told() == []


def test_a_job_that_is_nowhere_is_named_by_its_position() -> None:
    log = Log()
    log.job(0)
    log.job(1)
    log.folded(2)
    log.waits("0")
    assert log.told() == ["worker.triage/0/1: job 1 was folded, and is neither over nor there"]


def test_what_is_no_job_is_not_missed() -> None:
    log = Log()
    log.kafka.append("worker.triage", b"{}", partition=0)
    log.folded(1)
    assert log.told() == []


def test_a_foreign_topic_of_several_partitions_has_ids_of_two_numbers() -> None:
    log = Log(partitions=2)
    log.job(0, 0)
    log.job(1, 1)
    log.folded(1, 1)
    log.waits("0-0")
    assert log.told() == ["worker.triage/1/0: job 1-0 was folded, and is neither over nor there"]


def test_a_claim_that_breaks_a_rule_is_named_by_its_position() -> None:
    log = Log()
    log.job(0)
    log.folded(1)
    log.purged("0")
    log.purged("0")
    assert log.told() == [
        "worker.triage.claims/0/1: job_purged of job 0: the job was purged before"
    ]


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        (b"job_acked", b"garbage", "a record of kind 'job_acked' that cannot be read: "),
        (b"job_acked", None, "a record of kind 'job_acked' that cannot be read: "),
        (None, b"", "a record of kind '' that cannot be read: "),
        (
            b"\xff",
            b"\xff" * 40,
            "a record of kind '\N{REPLACEMENT CHARACTER}' that cannot be read: ",
        ),
        (
            b"job_claimed",
            CODEC.encode("queue_seen", {"queue": "triage"}),
            "a record of kind 'job_claimed' that holds a queue_seen",
        ),
    ],
)
def test_what_no_scheduler_wrote_is_named_and_the_rest_is_judged(
    kind: bytes | None, value: bytes | None, what: str
) -> None:
    log = Log()
    log.job(0)
    log.folded(1)
    log.kafka.append(
        "worker.triage.claims", value, headers=[] if kind is None else [("kind", kind)]
    )
    log.purged("0")
    log.purged("0")
    first, second = log.told()
    assert first.startswith(f"worker.triage.claims/0/0: {what}")
    assert second.startswith("worker.triage.claims/0/2: job_purged of job 0")


def test_a_catalog_with_garbage_hides_no_queue() -> None:
    log = Log()
    log.job(0)
    log.folded(1)
    endless = {"queue": "triage", "shards": (1 << 31) - 1, "shard_by": "tenant"}
    endless |= {"configured_at": "", "configured_by": ""}
    for value in (b"garbage", CODEC.encode("queue_configured", endless)):
        log.kafka.append("worker.queues", value, headers=[("kind", b"queue_configured")])
    assert log.told() == ["worker.triage/0/0: job 0 was folded, and is neither over nor there"]


@pytest.mark.parametrize("shards", [0, -1])
def test_a_queue_of_no_shards_is_judged_as_one(shards: int) -> None:
    log = Log()
    log.job(0)
    place = {"source_partition": 0, "next_offset": 1}
    log.row("q:triage", "row_queue", {"queue": "triage", "shards": shards, "relayed": [place]})
    assert log.told() == ["worker.triage/0/0: job 0 was folded, and is neither over nor there"]
