"""Milliseconds from appending a record to seeing the stage's output under read_committed."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

from bench.journal import stable_end
from bench.lab import Lab
from bench.load import Pace
from bench.orders import OUTPUT, PARTITIONS, bench_codec, mailbox_of, order_of
from bench.process import running
from bench.row import Row, at_most, percentile
from streams.codec import Codec
from streams.kafka import make_consumer, make_producer

_RECORDS = 800
_WARM_UP = 1_500  # until then the broker's JVM compiles what it runs
_PER_SECOND = 100
_TIMEOUT_S = 30.0
_HEADERS: list[tuple[str, str | bytes | None]] = [("kind", b"order")]


def measure(lab: Lab) -> list[Row]:
    """One member, thin traffic over all partitions."""
    codec = bench_codec()
    name = lab.new_stage("hop")
    p50: list[float] = []
    p99: list[float] = []
    with running(["bench.member", name], lab.settings) as member:
        member.wait_for("partitions_taken")
        _times_ms(lab, codec, name, lab.scaled(_WARM_UP))
        for _ in range(lab.rounds):
            times_ms = _times_ms(lab, codec, name, lab.scaled(_RECORDS))
            p50.append(percentile(times_ms, 0.50))
            p99.append(percentile(times_ms, 0.99))
        member.stop()
    return [
        Row("stage_hop_p50_at_100", "ms", p50, at_most(10)),
        Row("stage_hop_p99_at_100", "ms", p99, at_most(40)),
    ]


def _times_ms(lab: Lab, codec: Codec, name: str, count: int) -> list[float]:
    producer = make_producer(lab.settings, linger_ms=0)
    consumer = make_consumer(lab.settings, group_id=None)
    places = [
        TopicPartition(OUTPUT, partition, stable_end(consumer, OUTPUT, partition))
        for partition in range(PARTITIONS)
    ]
    consumer.assign(places)
    mailbox, encode, pace = mailbox_of(name), codec.encoder("bench_order"), Pace(_PER_SECOND)
    sent_s: dict[str, float] = {}
    seen_s: dict[str, float] = {}
    for number in range(count):
        _collect(consumer, codec, seen_s, pace.wait_s)
        order_id = f"{name}-{number}"
        value = encode(order_of(order_id, order_id, number))
        sent_s[order_id] = time.monotonic()
        producer.produce(mailbox, value, order_id.encode(), headers=_HEADERS)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while len(seen_s) < count and time.monotonic() < deadline_s:
        _collect(consumer, codec, seen_s, 0.1)
    consumer.close()
    assert len(seen_s) == count, f"{count - len(seen_s)} of {count} outputs did not come"
    return [(seen_s[order_id] - sent_s[order_id]) * 1_000 for order_id in sent_s]


def _collect(consumer: Consumer, codec: Codec, seen_s: dict[str, float], for_s: float) -> None:
    """Note when outputs come, until `for_s` has passed."""
    until_s = time.monotonic() + for_s
    while (left_s := until_s - time.monotonic()) > 0:
        message = consumer.poll(left_s)
        if message is not None and message.error() is None:
            now_s = time.monotonic()
            seen_s[codec.decode(message.value() or b"")[1]["order_id"]] = now_s
