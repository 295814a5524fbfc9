"""The relay on a real broker: every job reaches the mailbox once, in order, whatever happens."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka.admin import NewTopic

from streams.app import Application, Plan
from streams.core.ready_jobs import JOB_BYTES_MAX
from streams.edge.publisher import Publisher
from streams.edge.relay import relay
from streams.edge.topic_reader import topic_names
from streams.kafka import make_admin, make_consumer, make_producer, places_of
from streams.provision import provision_queue
from streams.roles import Role
from streams.settings import Settings
from tests.support.app_cluster import provision, settings_for_app
from tests.support.broker import PrivateBroker
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.relayed import CODEC, enqueue, job, relayed
from topology.edges import RELAY

pytestmark = [pytest.mark.broker]


def events(settings: Settings, queue: str) -> list[str]:
    return [each["event_id"] for each in relayed(settings).jobs.get(queue, [])]


def create(settings: Settings, topic: str, partitions: int = 1) -> None:
    admin = make_admin(settings)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout=30)


def committed(settings: Settings, topic: str) -> int:
    consumer = make_consumer(settings, group_id=RELAY.group)
    try:
        [place] = places_of(consumer, [TopicPartition(topic, 0)], 30)
        return place.offset
    finally:
        consumer.close()


def ends(settings: Settings, topic: str) -> int:
    consumer = make_consumer(settings, group_id=None)
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    finally:
        consumer.close()


def enqueue_in_transaction(settings: Settings, queue: str, value: bytes, *, keep: bool) -> None:
    producer = make_producer(settings, transactional_id=f"test-{queue}")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(f"worker.{queue}", value, partition=0)
    producer.flush(30)
    if keep:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


async def test_a_queue_is_relayed_from_its_first_job_on_and_what_is_no_job_is_told(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    # The first queue is there before the relay, the second one comes later.
    await asyncio.to_thread(create, settings, "worker.early", 2)
    await asyncio.to_thread(enqueue, settings, "early", [job(number) for number in range(3)])
    application = Application(Plan(settings=settings, roles=[Role.RELAY]))
    await application.start()
    try:
        await eventually(lambda: len(events(settings, "early")) == 3, "the first jobs")
        await asyncio.to_thread(create, settings, "worker.late")
        other = CODEC.encode("queue_seen", {"queue": "late"})
        huge = b"\xc3\x01" + b"x" * JOB_BYTES_MAX
        garbage = [b'{"a": 1}', other, job(1)[:-3], huge, b""]
        await asyncio.to_thread(enqueue, settings, "late", [job(0), *garbage, job(1)])
        await asyncio.to_thread(enqueue_in_transaction, settings, "late", job(2), keep=False)
        await asyncio.to_thread(enqueue_in_transaction, settings, "late", job(3), keep=True)
        await eventually(lambda: events(settings, "late") == ["e0", "e1", "e3"], "jobs")

        told = relayed(settings).rejected["late"]
        assert [each["offset"] for each in told] == [1, 2, 3, 4, 5]
        expected = ["unknown_frame", "is a queue_seen record", "early", "580002 bytes", "too_short"]
        for each, words in zip(told, expected, strict=True):
            assert words in each["reason"]
        assert [each["oversized"] for each in told] == [False, False, False, True, False]

        # Whoever waits for a queue waits for this: the place moves over ends of transactions.
        end = await asyncio.to_thread(ends, settings, "worker.late")
        await eventually(lambda: committed(settings, "worker.late") == end, f"the place {end}")
        assert {
            f"worker.{queue}.{kind}"
            for queue in ("early", "late")
            for kind in ("claims", "responses")
        } <= set(topic_names(settings))
        counted = application.metrics.get_sample_value(
            "harn_relay_records_total", {"queue": "late", "outcome": "rejected"}
        )
        assert counted == 5
    finally:
        await application.stop()


def forget_where_a_word_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client not know where one word is: as if it took the next one's ack for both."""
    deliver = relay._Session._on_delivery
    forgotten: list[Message] = []

    def without_offset(session: relay._Session, error: KafkaError | None, message: Message) -> None:
        if not forgotten:
            forgotten.append(message)
            message = Message(topic=message.topic(), partition=message.partition(), offset=-1)
        deliver(session, error, message)

    monkeypatch.setattr(relay._Session, "_on_delivery", without_offset)


async def test_a_backlog_is_relayed_to_its_very_end_though_a_word_may_be_lost(
    private_broker: PrivateBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    await asyncio.to_thread(create, settings, "worker.old")
    # All of it is fetched ahead, so that the last records and the end come in one round.
    wanted = [f"e{number}" for number in range(5_500)]
    await asyncio.to_thread(enqueue, settings, "old", [job(number) for number in range(5_500)])
    forget_where_a_word_is(monkeypatch)
    application = Application(Plan(settings=settings, roles=[Role.RELAY]))
    await application.start()
    try:
        await eventually(lambda: committed(settings, "worker.old") == 5_500, "the end")
        assert events(settings, "old") == wanted
        waits = [vars(each)["reason"] for each in caplog.records if each.message == "relay_waits"]
        assert any("does not know where a word is" in each for each in waits)
    finally:
        await application.stop()


async def test_a_queue_is_dealt_out_as_it_was_configured(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    publisher = Publisher(settings, name="test")
    await publisher.start()
    for shards in (3, 2):  # the first word stands
        value = {
            "queue": "wide",
            "shards": shards,
            "shard_by": "tenant",
            "configured_at": "2026-01-01T00:00:00.000Z",
            "configured_by": "test",
        }
        await publisher.append(
            "worker.queues",
            kind="queue_configured",
            value=CODEC.encode("queue_configured", value),
            key=b"\0wide",
        )
    await publisher.stop()
    await asyncio.to_thread(provision_queue, settings, "wide")
    jobs = [job(number, "wide", tenant=f"tenant-{number % 10}") for number in range(100)]
    await asyncio.to_thread(enqueue, settings, "wide", jobs)
    application = Application(Plan(settings=settings, roles=[Role.RELAY]))
    await application.start()
    try:
        await eventually(lambda: len(events(settings, "wide")) == 100, "the jobs")
        found = relayed(settings).jobs["wide"]
        assert {each["event_id"] for each in found} == {f"e{number}" for number in range(100)}
    finally:
        await application.stop()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_relay_that_ends_is_followed_by_one_that_goes_on(
    private_broker: PrivateBroker, tmp_path: Path, how: signal.Signals
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    create(settings, "worker.triage")
    wanted = [f"e{number}" for number in range(4_000)]

    def reached(count: int) -> Callable[[], bool]:
        return lambda: len(events(settings, "triage")) >= count

    with Fleet([Member("relay", "relay", settings, tmp_path)]) as fleet:
        fleet.wait_ready()
        for part in range(4):
            values = [job(number) for number in range(part * 1_000, (part + 1) * 1_000)]
            enqueue(settings, "triage", values)
            wait_until("some are relayed", reached(part * 1_000 + 1))
            fleet["relay"].signal(how)
            wait_until("it is back", lambda ends=part + 1: len(fleet["relay"].exits) == ends)
        wait_until("all are relayed", reached(len(wanted)))
    assert events(settings, "triage") == wanted


async def test_a_queue_that_cannot_have_its_topics_is_told_and_the_others_go_on(
    private_broker: PrivateBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    name = "q" * 236  # with `.responses` it is longer than a topic's name may be
    await asyncio.to_thread(create, settings, f"worker.{name}")
    await asyncio.to_thread(create, settings, "worker.good")
    await asyncio.to_thread(enqueue, settings, "good", [job(0)])
    application = Application(Plan(settings=settings, roles=[Role.RELAY]))
    await application.start()
    try:
        await eventually(lambda: events(settings, "good") == ["e0"], "the job")
        told = [each for each in caplog.records if each.message == "queue_not_relayed"]
        # Once, unless the relay begins anew meanwhile.
        assert any("expected <= 249" in vars(each)["reason"] for each in told)
    finally:
        await application.stop()
