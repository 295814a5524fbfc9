"""Headers that only clients of other languages write: a name is any bytes to Kafka."""

from __future__ import annotations

from typing import cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer import message_accumulator, producer
from aiokafka.record import default_records
from confluent_kafka import Message

from streams.edge.relay.relay import _record
from streams.edge.topic_reader import TopicReader
from streams.kafka import headers_of, make_producer
from streams.settings import Settings
from tests.support.mock_cluster import mock_cluster, read

TOPIC = "t"


class Bytes(str):
    """A name that goes over the wire as no UTF-8."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"\xff\xfe"


async def write(bootstrap: str, *names: str) -> None:
    """Append a record for each name, with a header of it."""
    client = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await client.start()
    try:
        for name in names:
            await client.send_and_wait(TOPIC, b"v", partition=0, headers=[(name, b"said")])
    finally:
        await client.stop()


async def test_a_header_whose_name_is_no_utf_8_hides_no_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The builder in C takes texts alone.
    builder = default_records._DefaultRecordBatchBuilderPy  # type: ignore[attr-defined]
    for module in (message_accumulator, producer):
        monkeypatch.setattr(module, "DefaultRecordBatchBuilder", builder)
    with mock_cluster() as bootstrap:
        settings = Settings(bootstrap=bootstrap)
        make_producer(settings).list_topics(TOPIC, timeout=30)  # makes it
        await write(bootstrap, *([Bytes("x"), "kind"] * 20))
        unreadable, readable, *_ = read(settings, TOPIC, 0, 40)
        for _ in range(1_000):  # what is called often is called otherwise
            headers_of(readable)
        assert headers_of(unreadable) == []
        assert headers_of(readable) == [("kind", b"said")]
        assert _record(cast("Message", unreadable)).headers == []
        with TopicReader(settings, TOPIC) as reader:
            reader.start_at({0: 0})
            found = []
            while len(found) < 40:
                found += reader.read(5.0)
        assert [(each.value, each.kind) for each in found] == 20 * [(b"v", ""), (b"v", "said")]
