"""Seconds until a member that holds a million rows of 100 bytes is ready.

The changelog is filled directly, as a stage's transactions would have left it.  A row's value is
the time from the assignment of partitions to serving them: fencing, loading, building timers.
"""

from __future__ import annotations

import dataclasses

from bench.lab import Lab
from bench.orders import NEVER_MS, PARTITIONS, bench_codec, bench_stage
from bench.process import running
from bench.row import Row, Target, at_most
from streams.codec import Codec
from streams.engine import POSITION_KEY, START, BoundStage
from streams.kafka import make_producer
from streams.settings import Settings

_ROWS = 1_000_000
_ROW_BYTES = 100
_TIMEOUT_S = 180.0


def measure(lab: Lab) -> list[Row]:
    """Both stores, with and without timers."""
    codec = bench_codec()
    rows: list[Row] = []
    for timers in (False, True):
        name = lab.new_stage("rows", timers=timers)
        fill(lab, codec, bench_stage(name, codec, timers=timers), lab.scaled(_ROWS))
        memory, warm = (15, 10) if timers else (6, 2)
        label = "with_timers" if timers else "without_timers"
        command = ["bench.member", name, *(["--timers"] if timers else [])]
        rows += _rows(lab, command, f"ready_memory_{label}", lab.settings, at_most(memory))
        disk = dataclasses.replace(lab.settings, store="rocksdb", instance_id=name)
        _start(command, disk)
        rows += _rows(lab, command, f"ready_rocksdb_warm_{label}", disk, at_most(warm))
    return rows


def _rows(lab: Lab, command: list[str], name: str, settings: Settings, target: Target) -> list[Row]:
    runs = [_start(command, settings) for _ in range(lab.rounds)]
    return [
        Row(name, "s", [taken for taken, _ in runs], target),
        Row(f"{name}_from_exec", "s", [whole for _, whole in runs]),
    ]


def _start(command: list[str], settings: Settings) -> tuple[float, float]:
    """Start a member; seconds it took to take its partitions, and from its very start."""
    with running(command, settings) as member:
        taken = member.wait_for("partitions_taken", _TIMEOUT_S)
        member.stop()
        return taken["seconds"], taken["heard_s"] - member.started_s


def fill(lab: Lab, codec: Codec, stage: BoundStage, count: int) -> None:
    """Write `count` rows and the position of each partition."""
    producer = make_producer(
        lab.settings, linger_ms=20, batch_size=900_000, queue_buffering_max_messages=2_000_000
    )
    encode = codec.encoder("row_wide")
    changelog = stage.declaration.changelog
    row = {"count": 1, "last_offset": 1, "due_ms": NEVER_MS, "note": "x" * _ROW_BYTES}
    row["note"] = "x" * (2 * _ROW_BYTES - len(_key(0)) - len(encode(row)))
    rows = [(_key(number), encode(row)) for number in range(count)]
    assert sum(map(len, rows[0])) == _ROW_BYTES, "rows are of the size that is promised"
    for partition in range(PARTITIONS):
        batch = [{"key": key, "value": value} for key, value in rows[partition::PARTITIONS]]
        assert producer.produce_batch(changelog, batch, partition=partition) == len(batch)
        position = dataclasses.replace(START, seq=1)
        last = stage.encode_position(position.as_row())
        producer.produce(changelog, last, POSITION_KEY, partition)
    assert producer.flush(120) == 0, "the changelog could not be filled"


def _key(number: int) -> bytes:
    return f"w:{number:08d}".encode()
