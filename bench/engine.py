"""Microseconds per record of the engine alone: decode, fold, encode, hash; no Kafka.

One stage whose input has twelve Avro fields and four headers, and which answers each record with
one output and one row.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.lab import Lab
from bench.orders import NOW_MS, Headers, bench_codec, bench_stage, orders
from bench.row import Row
from streams.engine import BoundStage, Memory, fold_batch, settle

BATCH_RECORDS = 1_000


@dataclass(slots=True)
class Fetched:
    """A mailbox record as a consumer hands it over."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: Headers


def fold_log(stage: BoundStage, log: list[Fetched]) -> float:
    """Fold the log in batches; seconds of processor time."""
    memory = Memory(stage, 0)
    started = time.process_time()
    for at in range(0, len(log), BATCH_RECORDS):
        settle(memory, fold_batch(memory, log[at : at + BATCH_RECORDS]))
    return time.process_time() - started


def measure(lab: Lab) -> list[Row]:
    """Fold the same log once a round."""
    codec = bench_codec()
    stage = bench_stage("engine", codec)
    count = lab.scaled(50_000)
    log = [
        Fetched(offset, NOW_MS + offset, key, value, headers)
        for offset, (key, value, headers) in enumerate(orders(codec, count))
    ]
    runs = [fold_log(stage, log) / count * 1e6 for _ in range(lab.rounds)]
    return [Row("engine_fold", "us/record", runs)]
