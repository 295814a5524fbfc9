"""Topics of others as sources, on a real broker: each record once, whatever comes and goes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic
from prometheus_client import CollectorRegistry

from streams.app import Application, Plan
from streams.core.stream_source import StreamSource
from streams.core.wire import SourceRejected
from streams.edge.sources.consumer import SourceConsumer
from streams.edge.sources.events import SourceEvent
from streams.edge.sources.service import converter_of
from streams.kafka import make_admin, make_consumer, make_producer
from streams.observe.source_metrics import SourceMetrics
from streams.roles import ALL_ROLES, Role
from streams.settings import Settings
from tests.support.app_cluster import (
    apply,
    assert_audit_is_clean,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import Kafka, PrivateBroker
from tests.support.eventually import eventually
from tests.support.topics import new_topic

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

HANDLERS = """
async def seen(event):
    return event.payload["raw"]
"""


def manifest(topic: str) -> str:
    return f"""
    [[triggers]]
    id = "everything"
    kind = "stream"
    provider = "kafka"
    match = {{}}
    handler = "seen"
    topic = "{topic}"
    start = "earliest"

    [[triggers]]
    id = "from-now-on"
    kind = "stream"
    provider = "kafka"
    match = {{}}
    handler = "seen"
    topic = "{topic}"
    """


def produce(settings: Settings, topic: str, numbers: Iterable[int], **headers: str) -> None:
    """Append numbers as JSON, over all partitions."""
    producer = make_producer(settings)
    for number in numbers:
        producer.produce(
            topic, json.dumps(number).encode(), str(number).encode(), headers=list(headers.items())
        )
    assert producer.flush(30) == 0


def results(settings: Settings) -> dict[str, Counter[int]]:
    """What handlers returned, by trigger: how often each number."""
    found: dict[str, Counter[int]] = {"everything": Counter(), "from-now-on": Counter()}
    for entry in read(settings, "trigger.outbox", {"dispatch_succeeded"}):
        found[entry.value["trigger_id"]][json.loads(entry.value["result"])] += 1
    return found


def committed(settings: Settings, group: str, topic: str, partitions: int) -> int:
    """The sum of a group's places."""
    consumer = make_consumer(settings, group_id=group)
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        return sum(max(each.offset, 0) for each in consumer.committed(places, timeout=30))
    finally:
        consumer.close()


@pytest.mark.soak
async def test_each_record_is_dispatched_once_to_each_trigger_through_restarts_and_reloads(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    settings = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, settings)
    topic = await asyncio.to_thread(new_topic, settings, partitions=3, prefix="shop")
    await asyncio.to_thread(produce, settings, topic, range(20))
    path = write_manifest(tmp_path / "app", manifest(topic), HANDLERS)
    first = Application(Plan(settings=settings, roles=ALL_ROLES, manifest=path))
    await first.start()
    second: Application | None = None
    try:
        await asyncio.to_thread(apply, settings, path)
        await eventually(lambda: len(results(settings)["everything"]) == 20, "20 outcomes")
        group = "harn.stream.default.from-now-on"
        await eventually(lambda: committed(settings, group, topic, 3) == 20, "a place at the end")

        # Another member of the ingest role shares the partitions, and one of them goes.
        alone = replace(settings, state_dir=tmp_path / "second")
        second = Application(Plan(settings=alone, roles=[Role.INGEST]))
        await second.start()
        await asyncio.to_thread(produce, settings, topic, range(20, 120))
        await second.stop()
        second = None
        await asyncio.to_thread(produce, settings, topic, range(120, 140))
        numbers = Counter(range(140))
        await eventually(lambda: results(settings)["everything"] == numbers, "140 outcomes")
        later = Counter(range(20, 140))
        await eventually(lambda: results(settings)["from-now-on"] == later, "120 outcomes")

        # What is no JSON is kept with its position, and holds up nothing.
        await asyncio.to_thread(produce_raw, settings, topic, b"{no json")
        await asyncio.to_thread(produce, settings, topic, [140])
        await eventually(lambda: results(settings)["everything"][140] == 1, "the one after it")
        await eventually(lambda: len(quarantined(settings, topic)) == 2, "one word per trigger")
        [bad] = {entry.value["raw"] for entry in quarantined(settings, topic)}
        assert bad == b"{no json"

        # A changed trigger goes on where it was; a removed one reads no further.
        text = manifest(topic).replace("match = {}", 'match = { events = ["order"] }', 1)
        text = text[: text.rindex("[[triggers]]")]
        path = write_manifest(tmp_path / "app", text, HANDLERS)
        await asyncio.to_thread(apply, settings, path)
        await asyncio.to_thread(produce, settings, topic, [200, 201], kind="order")
        await asyncio.to_thread(produce, settings, topic, [300])
        await eventually(lambda: results(settings)["everything"][201] == 1, "the wanted kind")
        assert results(settings)["everything"] == numbers + Counter([140, 200, 201])
        assert results(settings)["from-now-on"] == later + Counter([140])
    finally:
        if second is not None:
            await second.stop()
        await first.stop()
    await asyncio.to_thread(assert_audit_is_clean, settings)


def produce_raw(settings: Settings, topic: str, value: bytes) -> None:
    producer = make_producer(settings)
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def quarantined(settings: Settings, topic: str) -> list[Any]:
    found = read(settings, "trigger.dlq", {"record_quarantined"})
    return [entry for entry in found if entry.value["topic"] == topic]


# ---------------------------------------------------------------------- one consumer alone
class Sink:
    """Keeps what is appended; while its gate is closed, no ack comes."""

    def __init__(self) -> None:
        self.events: list[SourceEvent] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, made: Sequence[SourceEvent | SourceRejected]) -> None:
        self.events += [each for each in made if isinstance(each, SourceEvent)]
        await self.gate.wait()

    @property
    def numbers(self) -> set[int]:
        """What came; a member that was away for a while may have had some of it twice."""
        return {json.loads(each.event["provider_payload"])["raw"] for each in self.events}

    @property
    def ids(self) -> set[str]:
        return {each.event["id"] for each in self.events}


def source(topic: str, **changes: Any) -> StreamSource:
    return StreamSource(
        **{
            "trigger_id": f"t-{topic}",
            "namespace": "default",
            "provider": "kafka",
            "topics": (topic,),
            "format": "json",
            "start": "earliest",
            "events": (),
            **changes,
        }
    )


def consumer(
    kafka: Kafka, reads: StreamSource, sink: Sink, observer: SourceMetrics | None = None
) -> SourceConsumer:
    convert = converter_of(reads, None, 300_000)
    return SourceConsumer(kafka.settings, reads, sink, convert, observer=observer)


async def test_what_the_log_does_not_have_yet_is_behind(kafka: Kafka) -> None:
    topic = await asyncio.to_thread(new_topic, kafka.settings, partitions=2)
    await asyncio.to_thread(produce, kafka.settings, topic, range(10))
    registry = CollectorRegistry()

    def lag() -> float | None:
        labels = {"trigger_id": f"t-{topic}", "topic": topic}
        return registry.get_sample_value("harn_stream_source_lag_records", labels)

    sink = Sink()
    sink.gate.clear()
    reads = consumer(kafka, source(topic), sink, SourceMetrics(registry))
    reads.start()
    await eventually(lambda: lag() == 10, "fetched, and not in the log")
    sink.gate.set()
    await eventually(lambda: lag() == 0, "all is in the log")
    await reads.stop()
    assert lag() is None, "another member tells of it now"


async def test_what_was_not_in_the_log_is_read_again_under_the_same_ids(kafka: Kafka) -> None:
    topic = await asyncio.to_thread(new_topic, kafka.settings, partitions=2)
    await asyncio.to_thread(produce, kafka.settings, topic, range(10))
    sink = Sink()
    sink.gate.clear()
    stuck = consumer(kafka, source(topic), sink)
    stuck.start()
    await eventually(lambda: bool(sink.events), "a first round")
    await stuck.stop()  # the broker never had it
    ids = sink.ids
    again = Sink()
    next_one = consumer(kafka, source(topic), again)
    next_one.start()
    await eventually(lambda: again.numbers == set(range(10)), "all fetched again")
    await next_one.stop()
    assert len(again.ids) == 10
    assert again.ids >= ids
    third = Sink()
    last = consumer(kafka, source(topic), third)
    await asyncio.to_thread(produce, kafka.settings, topic, [10])
    last.start()
    await eventually(lambda: third.numbers == {10}, "only what is new")
    await last.stop()


async def test_latest_means_the_end_at_the_groups_begin_also_for_a_member_that_dies(
    kafka: Kafka,
) -> None:
    topic = await asyncio.to_thread(new_topic, kafka.settings, partitions=2)
    await asyncio.to_thread(produce, kafka.settings, topic, range(5))
    reads = source(topic, start="latest")
    before = Sink()
    began = consumer(kafka, reads, before)
    began.start()
    await eventually(lambda: len(began.assignment) == 2, "the assignment")
    await began.stop()
    await asyncio.to_thread(produce, kafka.settings, topic, range(5, 10))
    after = Sink()
    goes_on = consumer(kafka, reads, after)
    goes_on.start()
    await eventually(lambda: after.numbers == {5, 6, 7, 8, 9}, "what came meanwhile")

    # A partition that comes later is read from its first record.
    admin = make_admin(kafka.settings)
    grown = admin.create_partitions([NewPartitions(topic, 4)])[topic]
    await asyncio.to_thread(grown.result, 30)
    await asyncio.to_thread(produce, kafka.settings, topic, range(10, 30))
    await eventually(lambda: after.numbers == set(range(5, 30)), "the new partitions")
    await goes_on.stop()
    assert before.events == []


async def test_a_topic_that_is_made_later_is_read_then(kafka: Kafka) -> None:
    made = await asyncio.to_thread(new_topic, kafka.settings)
    missing = f"{made}.later"
    sink = Sink()
    waits = consumer(kafka, source(missing), sink)
    waits.start()
    admin = make_admin(kafka.settings)
    await asyncio.to_thread(admin.create_topics([NewTopic(missing, 1, 1)])[missing].result, 30)
    await asyncio.to_thread(produce, kafka.settings, missing, [1])
    await eventually(lambda: sink.numbers == {1}, "the topic's record")
    await waits.stop()
    assert not waits.failed.done()
