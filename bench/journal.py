"""Reads `audit.journal` as it grows: what each transaction did, and when.

The stages write it themselves, in the transactions that are measured, so that nothing has to be
added to them to be measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.orders import JOURNAL, PARTITIONS
from streams.codec import Codec
from streams.kafka import make_consumer
from streams.settings import Settings

_CONSUME = 10_000
_CONSUME_S = 0.1
_END_ATTEMPTS = 100
_END_S = 10.0


class Entry(NamedTuple):
    """One transaction of a stage; `at_ms` is when its owner wrote it, ms since epoch."""

    stage: str
    partition: int
    at_ms: int
    records: int
    outputs: int


class Journal:
    """The journal from now on."""

    def __init__(self, consumer: Consumer, codec: Codec) -> None:
        self._consumer = consumer
        self._codec = codec
        self.entries: list[Entry] = []

    def read(self) -> list[Entry]:
        """What came since, at most a moment's worth."""
        found: list[Entry] = []
        for message in self._consumer.consume(_CONSUME, _CONSUME_S):
            value = message.value()
            if message.error() is None and value is not None:
                entry = self._codec.decode(value)[1]
                found.append(
                    Entry(
                        entry["stage"],
                        entry["partition"],
                        message.timestamp()[1],
                        entry["records"],
                        entry["outputs"],
                    )
                )
        self.entries += found
        return found

    def read_until(self, done: Callable[[], bool], timeout_s: float) -> None:
        """Read until `done`; TimeoutError when that takes longer than `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the journal did not get there within {timeout_s} s")
            self.read()

    def of(self, stage: str) -> list[Entry]:
        """Entries of one stage, by time."""
        return sorted((e for e in self.entries if e.stage == stage), key=lambda e: e.at_ms)

    def records_of(self, stage: str) -> int:
        """Records that a stage has folded."""
        return sum(entry.records for entry in self.entries if entry.stage == stage)


def stable_end(consumer: Consumer, topic: str, partition: int) -> int:
    """The stable end of a partition, also of one that was made a moment ago."""
    for _ in range(_END_ATTEMPTS):
        with suppress(KafkaException):
            place = TopicPartition(topic, partition)
            return consumer.get_watermark_offsets(place, timeout=_END_S, cached=False)[1]
        time.sleep(_CONSUME_S)
    raise TimeoutError(f"{topic}/{partition} has no leader")


@contextmanager
def journal_from_now(settings: Settings, codec: Codec) -> Iterator[Journal]:
    """The journal's entries that are committed from now on."""
    consumer = make_consumer(settings, group_id=None)
    try:
        consumer.assign(
            [
                TopicPartition(JOURNAL, partition, stable_end(consumer, JOURNAL, partition))
                for partition in range(PARTITIONS)
            ]
        )
        yield Journal(consumer, codec)
    finally:
        consumer.close()


def rate_of(entries: Iterable[Entry]) -> float:
    """Records per second from the first to the last transaction."""
    ordered = sorted(entries, key=lambda entry: entry.at_ms)
    seconds = (ordered[-1].at_ms - ordered[0].at_ms) / 1_000
    return sum(entry.records for entry in ordered[1:]) / seconds


def longest_silence_s(entries: Iterable[Entry], partition: int) -> float:
    """The longest time between two transactions of a partition, s."""
    times = sorted(entry.at_ms for entry in entries if entry.partition == partition)
    return max((after - before for before, after in pairwise(times)), default=0) / 1e3
