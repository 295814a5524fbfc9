"""Audits of a real log: what stages wrote in transactions, and what somebody changed afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streams.audit.checkpoint import encode_checkpoint
from streams.audit.divergence import DivergenceKind
from streams.audit.kafka_log import KafkaLog
from streams.audit.log import LogRecord, Place
from streams.audit.plan import Scope
from streams.audit.verdict import Report
from streams.audit.verify import verify
from streams.core.placement import partition_of
from streams.core.record import Position
from streams.engine import POSITION_KEY
from streams.errors import BrokerError
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.broker import Kafka
from tests.support.published import (
    Owners,
    commit_offsets,
    create_topics,
    delete_records,
    new_prefix,
    publish,
)
from tests.support.recorded import CODEC, Recording, event_of, recorded, renumbered

pytestmark = pytest.mark.broker

Kind = DivergenceKind


def audit(settings: Settings, recording: Recording, scope: Scope | None = None) -> Report:
    with KafkaLog(settings) as log:
        return verify(log, recording.stages, scope)


def emit(settings: Settings, recording: Recording, count: int, name: str) -> None:
    producer = make_producer(settings)
    for number in range(count):
        event_id = f"{name}-{number % (count // 2)}"
        producer.produce(
            f"{recording.prefix}arrived",
            CODEC.encode("lifecycle_event_unmatched", event_of(event_id)),
            event_id.encode(),
            partition=partition_of(event_id.encode(), recording.partitions),
            headers=[("kind", b"event")],
        )
    assert producer.flush(30) == 0


def abandon_a_transaction(settings: Settings, recording: Recording) -> None:
    """Leave an aborted output, row and journal entry behind, as an owner that was killed does."""
    producer = make_producer(settings, transactional_id=f"{recording.prefix}abandoned")
    producer.init_transactions(30)
    producer.begin_transaction()
    for topic in ("notes", "passed", "first-seen-changelog", "journal"):
        producer.produce(f"{recording.prefix}{topic}", b"half", b"first/0", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)


def test_what_stages_write_in_transactions_is_verified_also_from_a_checkpoint(
    kafka: Kafka,
) -> None:
    settings, recording = kafka.settings, Recording(prefix=new_prefix())
    create_topics(settings, recording, append_time=True)
    owners = Owners(settings, recording)
    emit(settings, recording, 1_000, "one")
    owners.run()
    abandon_a_transaction(settings, recording)
    heads = {}
    producer = make_producer(settings)
    for (name, partition), memory in owners.memories.items():
        rows = memory.rows.store.items()
        key = f"{name}/{partition}".encode()
        for part in encode_checkpoint(CODEC, name, partition, memory.position, rows):
            producer.produce(f"{recording.prefix}checkpoints", part, key, partition=partition)
        heads[memory.stage.declaration.source, partition] = memory.position
    assert producer.flush(30) == 0
    emit(settings, recording, 1_000, "two")
    owners.run()
    whole = audit(settings, recording)
    assert [str(each) for each in whole.divergences] == []
    assert whole.word == "verified"
    assert whole.records >= 2_000 + 1_000  # all events, and each new one once more in `passed`

    cut = [
        TopicPartition(topic, partition, position.next_offset)
        for (topic, partition), position in heads.items()
    ]
    delete_records(settings, *cut)
    rest = audit(settings, recording)
    assert [str(each) for each in rest.divergences] == []
    assert rest.word == "verified"
    for verdict in rest.verdicts:
        head = heads[verdict.mailbox, verdict.partition]
        assert verdict.judged[0].first_offset == head.next_offset
        assert f"the checkpoint of transaction {head.seq} " in verdict.judged[0].began
        assert verdict.judged[-1].next_offset <= verdict.mailbox_end
    owners.close()


# ---------------------------------------------------------------------- tampering
def flip(records: list[LogRecord], at: int) -> None:
    value = records[at].value or b""
    records[at] = records[at]._replace(value=value[:-1] + bytes([value[-1] ^ 1]))


def drop(records: list[LogRecord], at: int) -> None:
    del records[at]


def duplicate(records: list[LogRecord], at: int) -> None:
    records.insert(at + 1, records[at])


def swap(records: list[LogRecord], at: int) -> None:
    origin = dict(records[at].headers).get("fold"), records[at].key
    other = next(
        i
        for i in range(at + 1, len(records))
        if (dict(records[i].headers).get("fold"), records[i].key) == origin
    )
    records[at], records[other] = records[other], records[at]


def forge(records: list[LogRecord], at: int) -> None:
    headers = [("kind", b"seen"), ("cause", b"arrived/0/5/9"), ("fold", b"first@1")]
    records.insert(at, records[at]._replace(headers=headers))


def nth(recording: Recording, topic: str, wanted: Callable[[LogRecord], bool]) -> tuple[Place, int]:
    """The place and index of the fifth wanted record of partition 0."""
    place = (f"{recording.prefix}{topic}", 0)
    found = [at for at, record in enumerate(recording.records(place)) if wanted(record)]
    return place, found[4]


def of_first(record: LogRecord) -> bool:
    return ("fold", b"first@1") in record.headers


@pytest.mark.parametrize(
    ("topic", "wanted", "change", "kind", "at"),
    [
        ("notes", of_first, flip, Kind.DIFFERENT_OUTPUT, 0),
        ("passed", of_first, drop, Kind.MISSING_OUTPUT, 0),
        ("notes", of_first, duplicate, Kind.DUPLICATE_OUTPUT, 1),
        ("passed", of_first, swap, Kind.OUT_OF_ORDER, 0),
        ("notes", of_first, forge, Kind.UNEXPECTED_OUTPUT, 0),
        ("first-seen-changelog", lambda r: r.key != POSITION_KEY, flip, Kind.DIFFERENT_ROW, 0),
        ("journal", lambda r: r.key == b"first/0", drop, Kind.JOURNAL_GAP, None),
        ("journal", lambda r: r.key == b"first/0", flip, Kind.CHAIN_BROKEN, 0),
    ],
)
def test_a_change_in_a_topic_is_named_by_position(
    kafka: Kafka, topic: str, wanted: Any, change: Any, kind: DivergenceKind, at: int | None
) -> None:
    recording = recorded(11, prefix=new_prefix())
    place, index = nth(recording, topic, wanted)
    if topic == "passed" and change is swap:
        # Outputs of one stage partition only: others may lie between them.
        swap_outputs(recording.records(place), index)
    else:
        change(recording.records(place), index)
    recording.log.topics[place[0]][place[1]] = renumbered(recording.records(place))
    publish(kafka.settings, recording)
    report = audit(kafka.settings, recording)
    assert report.word == "diverges"
    first = report.divergences[0]
    assert first.kind is kind, str(first)
    if kind is Kind.MISSING_OUTPUT:
        assert (first.place.topic, first.place.partition) == place
        assert first.place.offset <= index
    elif at is not None:
        assert first.place == Position(*place, index + at)
    else:
        assert (first.place.topic, first.place.partition) == place


def swap_outputs(records: list[LogRecord], at: int) -> None:
    def origin(record: LogRecord) -> bytes:
        return dict(record.headers)["cause"].rsplit(b"/", 2)[0]

    other = next(
        i for i in range(at + 1, len(records)) if origin(records[i]) == origin(records[at])
    )
    records[at], records[other] = records[other], records[at]


def test_a_moved_group_offset_is_named(kafka: Kafka) -> None:
    recording = recorded(11, prefix=new_prefix())
    publish(kafka.settings, recording)
    assert audit(kafka.settings, recording).word == "verified"
    key = next(iter(recording.log.groups))
    recording.log.groups[key] -= 1
    commit_offsets(kafka.settings, recording)
    (found,) = audit(kafka.settings, recording).divergences
    assert found.kind is Kind.OFFSET_MISMATCH
    assert found.place == Position(key[1], key[2], recording.log.groups[key])


def test_a_tampered_checkpoint_is_named(kafka: Kafka) -> None:
    recording = recorded(11, prefix=new_prefix())
    recording.checkpoint("first", 0)
    place = (f"{recording.prefix}checkpoints", 0)
    part = CODEC.decode(recording.records(place)[0].value or b"")[1]
    part["rows"][0]["value"] += b"!"
    changed = CODEC.encode("checkpoint_part", part)
    recording.records(place)[0] = recording.records(place)[0]._replace(value=changed)
    publish(kafka.settings, recording)
    first = audit(kafka.settings, recording).divergences[0]
    assert (first.kind, first.place) == (Kind.CHECKPOINT_CHANGED, Position(*place, 0))


def test_a_mailbox_without_head_and_checkpoint_cannot_be_judged(kafka: Kafka) -> None:
    recording = recorded(11, prefix=new_prefix())
    publish(kafka.settings, recording)
    mailbox = f"{recording.prefix}arrived"
    delete_records(kafka.settings, TopicPartition(mailbox, 0, 5))
    report = audit(kafka.settings, recording, Scope(stage="first"))
    assert report.word == "unjudged"
    (unjudged,) = report.verdicts[0].unjudged
    assert (unjudged.first_offset, unjudged.next_offset) == (5, report.verdicts[0].mailbox_end)


def test_a_transaction_that_stays_open_is_told(kafka: Kafka) -> None:
    recording = recorded(11, prefix=new_prefix())
    publish(kafka.settings, recording)
    producer = make_producer(
        kafka.settings, transactional_id=f"{recording.prefix}open", transaction_timeout_ms=60_000
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(f"{recording.prefix}notes", b"open", partition=0)
    producer.flush(30)
    impatient = KafkaLog(kafka.settings, patience_s=0.2)
    message = f"a transaction in {recording.prefix}notes/0 is open for more than 0.2 s"
    with impatient as log, pytest.raises(BrokerError, match=message):
        verify(log, recording.stages)
    producer.abort_transaction(30)
    assert audit(kafka.settings, recording).word == "verified"
