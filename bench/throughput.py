"""Records per second of one stage on one member, beside a raw loop that does the same work.

Both read the same mailbox, filled before, in rounds that take turns; both are timed by their own
journal entries, from the first transaction to the last.
"""

from __future__ import annotations

from bench.journal import journal_from_now, rate_of
from bench.lab import Lab
from bench.orders import bench_codec, mailbox_of, orders
from bench.process import running
from bench.row import Row, at_least
from streams.codec import Codec
from streams.kafka import make_producer

_RECORDS = 300_000
_TIMEOUT_S = 180.0
_TARGET = 30_000
_RATIO_TARGET = 0.60


def measure(lab: Lab) -> list[Row]:
    """Interleaved rounds of both, on one mailbox."""
    codec = bench_codec()
    mailbox = mailbox_of(lab.new_stage("filled"))
    count = lab.scaled(_RECORDS)
    fill(lab, mailbox, codec, count)
    _raw_rate(lab, codec, mailbox, count)  # until then the broker's JVM compiles what it runs
    stage_runs: list[float] = []
    raw_runs: list[float] = []
    for number in range(lab.rounds):
        turns = [(_stage_rate, stage_runs), (_raw_rate, raw_runs)]
        for rate, runs in turns if number % 2 == 0 else reversed(turns):
            runs.append(rate(lab, codec, mailbox, count))
    ratios = [stage / raw for stage, raw in zip(stage_runs, raw_runs, strict=True)]
    return [
        Row("stage_throughput", "records/s", stage_runs, at_least(_TARGET)),
        Row("raw_loop_throughput", "records/s", raw_runs),
        Row("ratio_to_raw_loop", "ratio", ratios, at_least(_RATIO_TARGET)),
    ]


def fill(lab: Lab, mailbox: str, codec: Codec, count: int) -> None:
    """Append `count` orders to the mailbox."""
    producer = make_producer(lab.settings, linger_ms=20, batch_size=500_000)
    for key, value, headers in orders(codec, count):
        while True:
            try:
                producer.produce(mailbox, value, key, headers=[*headers])
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(60) == 0, "the mailbox could not be filled"


def _stage_rate(lab: Lab, codec: Codec, mailbox: str, count: int) -> float:
    name = lab.new_stage("stage", mailbox=mailbox)
    return _rate(lab, codec, name, ["bench.member", name, "--mailbox", mailbox], count)


def _raw_rate(lab: Lab, codec: Codec, mailbox: str, count: int) -> float:
    name = lab.new_stage("raw", mailbox=mailbox)
    return _rate(lab, codec, name, ["bench.raw_loop", name, mailbox, str(count)], count)


def _rate(lab: Lab, codec: Codec, name: str, command: list[str], count: int) -> float:
    with (
        journal_from_now(lab.settings, codec) as journal,
        running(command, lab.settings) as process,
    ):
        journal.read_until(
            lambda: journal.records_of(name) >= count or process.ended, timeout_s=_TIMEOUT_S
        )
        if journal.records_of(name) < count:
            journal.read()
        assert journal.records_of(name) == count, process.tail()
        return rate_of(journal.of(name))
