"""The client factory against a real broker: what it must agree on with every other client."""

from __future__ import annotations

import logging
import uuid

import pytest
from aiokafka.partitioner import DefaultPartitioner
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import NewTopic

from streams.errors import ConfigError
from streams.kafka import (
    aiokafka_options,
    broker_urls,
    consumer_config,
    make_admin,
    make_consumer,
    make_producer,
    producer_config,
    wait_until_served,
)
from streams.settings import Settings
from tests.support.broker import Kafka
from tests.support.topics import append, new_topic, read_all

broker = pytest.mark.broker


def poll(consumer: Consumer) -> bytes | None:
    """Return the value of the next record."""
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is None, message.error()
    return message.value()


@broker
def test_keys_go_where_the_other_client_library_would_send_them(kafka: Kafka) -> None:
    topic = new_topic(kafka.settings, partitions=4)
    producer = make_producer(kafka.settings)
    keys = [f"session:{number}".encode() for number in range(200)]
    sent: dict[bytes | None, int | None] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None
        sent[message.key()] = message.partition()

    for key in keys:
        producer.produce(topic, b"", key, on_delivery=note)
    assert producer.flush(30) == 0

    choose = DefaultPartitioner()
    assert sent == {key: choose(key, [0, 1, 2, 3], [0, 1, 2, 3]) for key in keys}
    assert set(sent.values()) == {0, 1, 2, 3}


@broker
def test_what_a_transaction_did_not_commit_is_not_read(kafka: Kafka) -> None:
    topic = new_topic(kafka.settings)
    append(kafka.settings, topic, [b"before"])
    producer = make_producer(kafka.settings, transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=0)
    producer.commit_transaction(30)

    consumer = make_consumer(kafka.settings, group_id=None)
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = [poll(consumer), poll(consumer)]
    consumer.close()

    assert read == [b"before", b"committed"]


@broker
def test_a_consumer_can_use_the_newer_group_protocol(kafka: Kafka) -> None:
    topic = new_topic(kafka.settings)
    append(kafka.settings, topic, [b"one"])
    consumer = make_consumer(kafka.settings, group_id=topic, group_protocol="consumer")
    consumer.subscribe([topic])

    value = poll(consumer)
    consumer.close()

    assert value == b"one"


@broker
def test_reading_to_the_end_sees_everything(kafka: Kafka) -> None:
    topic = new_topic(kafka.settings)
    values = [b"%d" % number for number in range(2_500)]
    append(kafka.settings, topic, values)

    assert read_all(kafka.settings, topic) == values


@broker
def test_a_topic_is_served_once_all_its_leaders_answer(kafka: Kafka) -> None:
    admin = make_admin(kafka.settings)
    names = [f"served.{uuid.uuid4().hex[:12]}.{number}" for number in range(8)]
    admin.create_topics([NewTopic(name, 4, 1) for name in names])
    places = [(name, partition) for name in names for partition in range(4)]
    wait_until_served(kafka.settings, places, 60)
    consumer = make_consumer(kafka.settings, group_id=None)
    for place in places:
        assert consumer.get_watermark_offsets(TopicPartition(*place), timeout=30) == (0, 0)
    consumer.close()
    with pytest.raises(KafkaException, match="_UNKNOWN_PARTITION"):
        wait_until_served(kafka.settings, [(names[0], 3), (names[0], 4)], 0.5)


@broker
def test_a_topic_that_was_not_declared_is_not_made_by_writing_to_it(kafka: Kafka) -> None:
    producer = make_producer(kafka.settings, topic_metadata_propagation_max_ms=500)
    failed: list[int | None] = []

    def note(error: KafkaError | None, message: Message) -> None:
        del message
        failed.append(None if error is None else error.code())

    producer.produce("never.declared", b"x", on_delivery=note)
    producer.flush(30)

    assert len(failed) == 1
    assert failed[0] in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
    assert "never.declared" not in make_admin(kafka.settings).list_topics(timeout=30).topics


def test_clients_need_an_address() -> None:
    with pytest.raises(ConfigError, match="KAFKA_BOOTSTRAP_SERVERS is unset"):
        make_producer(Settings())


def test_security_reaches_every_kind_of_client() -> None:
    settings = Settings(
        bootstrap="a:1,b:2",
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="PLAIN",
        kafka_sasl_username="user",
        kafka_sasl_password="hunter2",
    )

    for config in (producer_config(settings), consumer_config(settings, group_id="g")):
        assert config["security.protocol"] == "SASL_PLAINTEXT"
        assert config["sasl.username"] == "user"
        assert config["sasl.password"] == "hunter2"
    assert aiokafka_options(settings) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "user",
        "sasl_plain_password": "hunter2",
    }
    assert broker_urls(settings) == ["kafka://a:1", "kafka://b:2"]


def test_a_misspelled_property_is_refused() -> None:
    with pytest.raises(KafkaException, match=r"lingering\.ms"):
        make_producer(Settings(bootstrap="a:1"), lingering_ms=1)


def test_a_line_that_repeats_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("harn.kafka")
    for attempt in range(50):
        log.warning("connect to %s failed after %d ms", "x:1", attempt)
    log.warning("something else")

    assert [record.getMessage() for record in caplog.records] == [
        "connect to x:1 failed after 0 ms",
        "something else",
    ]
