"""The yardstick: a plain confluent-kafka loop that does the same work as the benchmark's stage.

It consumes, decodes with the same codec, counts, encodes, and writes the same outputs with the same
headers, the same rows, a journal entry and the offsets, in transactions of up to 1,000 records of
one partition, one producer a partition, each committed in a thread.  It keeps no memory worth the
name: nothing is loaded, checked, chained or fenced by generation.

`python -m bench.raw_loop NAME MAILBOX COUNT`.
"""

from __future__ import annotations

import argparse
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.orders import JOURNAL, OUTPUT, PARTITIONS, bench_codec, bench_topology
from streams.codec import Codec
from streams.collector import look_seldom
from streams.kafka import make_consumer, make_producer
from streams.settings import Settings

_BATCH_RECORDS = 1_000
_BACKLOG_RECORDS = 20_000
_CONSUME = 4_000
_CONSUME_S = 0.01

Appended = tuple[str, bytes, bytes, dict[str, Any]]  # topic, value, key, further arguments


class Lane:
    """One partition: its producer, its counts, what waits, and the commit under way."""

    def __init__(
        self, name: str, mailbox: str, partition: int, settings: Settings, codec: Codec
    ) -> None:
        self.partition = partition
        self.waiting: list[Message] = []
        self.committing: Future[None] | None = None
        self._name = name
        self._mailbox = mailbox
        self._changelog = bench_topology(name).stage(name).changelog
        self._codec = codec
        self._encode_order = codec.encoder("bench_order")
        self._encode_row = codec.encoder("row_bench")
        self._counts: dict[str, int] = {}
        self._seq = 0
        self._producer: Producer = make_producer(
            settings,
            transactional_id=f"{name}-{partition}",
            batch_size=1_000_000,
            queue_buffering_max_messages=200_000,
            queue_buffering_max_kbytes=131_072,
        )

    def open(self) -> None:
        """Make the producer ready for transactions."""
        self._producer.list_topics(self._mailbox, timeout=30)
        self._producer.init_transactions(30)

    def fold(self) -> tuple[list[Appended], int]:
        """Turn up to a batch of what waits into records to append, and the next offset."""
        batch, self.waiting = self.waiting[:_BATCH_RECORDS], self.waiting[_BATCH_RECORDS:]
        appended: list[Appended] = []
        rows: dict[str, dict[str, int]] = {}
        decode, counts, place = (
            self._codec.decode,
            self._counts,
            f"{self._mailbox}/{self.partition}",
        )
        for message in batch:
            kind = dict(message.headers() or ())["kind"]
            order = decode(message.value() or b"")[1]
            customer, offset = order["customer"], message.offset() or 0
            counts[customer] = count = counts.get(customer, 0) + 1
            rows[customer] = {"count": count, "last_offset": offset}
            paid = {**order, "paid": True, "updated_ms": message.timestamp()[1]}
            headers = [
                ("kind", kind),
                ("cause", f"{place}/{offset}/0".encode()),
                ("fold", b"raw@1"),
            ]
            value = self._encode_order(paid)
            appended.append((OUTPUT, value, customer.encode(), {"headers": headers}))
        here = {"partition": self.partition}
        for customer, row in rows.items():
            appended.append(
                (self._changelog, self._encode_row(row), f"c:{customer}".encode(), here)
            )
        first, following = batch[0].offset() or 0, (batch[-1].offset() or 0) + 1
        appended += self._bookkeeping(first, following, len(batch), len(rows))
        return appended, following

    def _bookkeeping(self, first: int, following: int, records: int, rows: int) -> list[Appended]:
        """The position row and the journal entry of a batch."""
        self._seq += 1
        position: dict[str, Any] = {
            "seq": self._seq,
            "next_offset": following,
            "now_ms": 0,
            "chain": b"",
            "state_hash": b"",
        }
        entry = position | {
            "stage": self._name,
            "fold": "raw@1",
            "partition": self.partition,
            "first_offset": first,
            "records": records,
            "outputs": records,
            "rows": rows,
            "skipped": [],
        }
        row = self._codec.encode("row_position", position)
        journal = self._codec.encode("journal_entry", entry)
        here = {"partition": self.partition}
        headers = {"headers": [("kind", b"journal_entry")]}
        return [
            (self._changelog, row, b"\0seq", here),
            (JOURNAL, journal, f"{self._name}/{self.partition}".encode(), here | headers),
        ]

    def commit(self, appended: list[Appended], following: int, member: object) -> None:
        """Write one batch as one transaction; runs in a thread."""
        producer = self._producer
        producer.begin_transaction()
        produce = producer.produce
        for topic, value, key, options in appended:
            produce(topic, value, key, **options)
        offset = TopicPartition(self._mailbox, self.partition, following)
        producer.send_offsets_to_transaction([offset], member)
        producer.commit_transaction()


def run(name: str, mailbox: str, expected: int) -> None:
    """Work until `expected` records are committed."""
    settings = Settings.from_env()
    look_seldom()  # as a process that runs stages does
    codec = bench_codec()
    lanes = [Lane(name, mailbox, partition, settings, codec) for partition in range(PARTITIONS)]
    with ThreadPoolExecutor(PARTITIONS) as pool:
        list(pool.map(Lane.open, lanes))
        consumer = make_consumer(settings, group_id=f"bench.{name}", fetch_wait_max_ms=10)
        consumer.subscribe([mailbox])
        _work(consumer, lanes, pool, expected)
        consumer.close()


def _work(consumer: Consumer, lanes: list[Lane], pool: ThreadPoolExecutor, expected: int) -> None:
    fetched = 0
    while fetched < expected or any(lane.waiting or lane.committing for lane in lanes):
        if sum(len(lane.waiting) for lane in lanes) < _BACKLOG_RECORDS and fetched < expected:
            for message in consumer.consume(_CONSUME, _CONSUME_S):
                lanes[message.partition() or 0].waiting.append(message)
                fetched += 1
        else:
            under_way = [lane.committing for lane in lanes if lane.committing is not None]
            if under_way:
                wait(under_way, return_when=FIRST_COMPLETED)
        for lane in lanes:
            if lane.committing is not None and lane.committing.done():
                lane.committing.result()
                lane.committing = None
            if lane.committing is None and lane.waiting:
                appended, following = lane.fold()
                member = consumer.consumer_group_metadata()
                lane.committing = pool.submit(lane.commit, appended, following, member)


def main() -> None:
    """Run the loop once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("mailbox")
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    run(options.name, options.mailbox, options.count)


if __name__ == "__main__":
    main()
