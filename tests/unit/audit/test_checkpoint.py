"""Checkpoints: written in parts, believed only if they hash to what the journal says."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.audit.checkpoint import (
    PART_BYTES_MAX,
    Checkpoint,
    encode_checkpoint,
    load_rows,
    read_checkpoints,
)
from streams.audit.divergence import DivergenceKind
from streams.audit.log import Place, Span
from streams.audit.memory_log import MemoryLog
from streams.audit.plan import Scope
from streams.audit.verify import verify
from streams.core.record import Position
from streams.engine import StatePosition, row_hash
from streams.errors import ConfigError
from tests.support.recorded import CODEC, Recording, recorded

KEY = b"first/0"
PLACE: Place = ("checkpoints", 0)
ROWS = st.dictionaries(st.binary(min_size=1, max_size=12), st.binary(max_size=40), max_size=12)


def position_of(rows: dict[bytes, bytes], seq: int = 7) -> StatePosition:
    total = sum(row_hash(key, value) for key, value in rows.items()) % (1 << 256)
    return StatePosition(seq, 100, 5_000, b"c" * 32, total.to_bytes(32))


def written(*checkpoints: tuple[StatePosition, dict[bytes, bytes]]) -> MemoryLog:
    log = MemoryLog()
    log.create("checkpoints", 1)
    for position, rows in checkpoints:
        for part in encode_checkpoint(CODEC, "first", 0, position, rows.items()):
            log.append(PLACE, 1, KEY, part, [])
    return log


def read(log: MemoryLog) -> list[Checkpoint]:
    return list(read_checkpoints(log, CODEC, PLACE, log.spans([PLACE])[PLACE], KEY))


@given(ROWS)
def test_what_is_written_is_read_back_whole(rows: dict[bytes, bytes]) -> None:
    log = written((position_of(rows), rows))
    (checkpoint,) = read(log)
    assert checkpoint.problem is None
    assert checkpoint.position == position_of(rows)
    assert checkpoint.rows == len(rows)
    assert load_rows(log, CODEC, checkpoint) == rows


def test_many_rows_are_cut_into_parts_that_fit_a_record() -> None:
    rows = {f"s:{number:05}".encode(): b"v" * 3_000 for number in range(1_000)}
    rows[b"s:large"] = b"v" * (PART_BYTES_MAX + 1)
    parts = list(encode_checkpoint(CODEC, "first", 0, position_of(rows), rows.items()))
    assert len(parts) > 4
    assert max(map(len, parts)) < PART_BYTES_MAX + 1_000
    log = written((position_of(rows), rows))
    (checkpoint,) = read(log)
    assert len(checkpoint.offsets) == len(parts)
    assert load_rows(log, CODEC, checkpoint) == rows


def test_an_incomplete_checkpoint_means_nothing() -> None:
    rows = {f"s:{number:05}".encode(): b"v" * 3_000 for number in range(1_000)}
    log = written((position_of(rows, 3), rows), (position_of(rows, 5), rows))
    del log.topics["checkpoints"][0][2]
    assert [each.position.seq for each in read(log)] == [5]
    log.cut(PLACE, 6)
    assert [each.position.seq for each in read(log)] == []


def test_two_writers_at_once_do_not_spoil_each_other() -> None:
    rows = {f"s:{number:05}".encode(): b"v" * 3_000 for number in range(600)}
    one = list(encode_checkpoint(CODEC, "first", 0, position_of(rows, 3), rows.items()))
    other = list(encode_checkpoint(CODEC, "first", 0, position_of(rows, 4), rows.items()))
    log = MemoryLog()
    log.create("checkpoints", 1)
    for pair in zip(one, other, strict=True):
        for part in pair:
            log.append(PLACE, 1, KEY, part, [])
    assert [(each.position.seq, each.problem) for each in read(log)] == [(3, None), (4, None)]


@given(ROWS.filter(bool), st.randoms(use_true_random=False))
def test_a_changed_row_shows(rows: dict[bytes, bytes], dice: random.Random) -> None:
    log = written((position_of(rows), rows))
    record = log.topics["checkpoints"][0][0]
    part = CODEC.decode(record.value or b"")[1]
    at = dice.randrange(len(part["rows"]))
    part["rows"][at]["value"] += b"!"
    changed = record._replace(value=CODEC.encode("checkpoint_part", part))
    log.topics["checkpoints"][0][0] = changed
    assert read(log)[0].problem is not None


def test_rows_out_of_order_show() -> None:
    rows = {b"a": b"1", b"b": b"2"}
    log = written((position_of(rows), rows))
    record = log.topics["checkpoints"][0][0]
    part = CODEC.decode(record.value or b"")[1]
    part["rows"].reverse()
    log.topics["checkpoints"][0][0] = record._replace(value=CODEC.encode("checkpoint_part", part))
    assert read(log)[0].problem == "rows that are not in key order"


# ---------------------------------------------------------------------- judging from one
def cut_recording(*, checkpoint: bool = True) -> tuple[Recording, int]:
    """A log of which the mailboxes' heads are gone; the seq of the checkpoint of first/0."""
    recording = recorded(8)
    seq = recording.checkpoint("first", 0) if checkpoint else 0
    for name, partition in recording.memories:
        if (name, partition) != ("first", 0) and checkpoint:
            recording.checkpoint(name, partition)
    heads = {place: memory.position.next_offset for place, memory in recording.memories.items()}
    for number in range(60):
        recording.event(f"later-{number % 25}")
    recording.run()
    for (name, partition), offset in heads.items():
        source = recording.stages[name].declaration.source
        recording.log.cut((source, partition), offset - 2)
    return recording, seq


def test_a_mailbox_without_its_head_is_judged_from_the_first_checkpoint() -> None:
    recording, seq = cut_recording()
    report = verify(recording.log, recording.stages)
    assert report.word == "verified"
    first = report.verdicts[0]
    start = recording.log.starts["arrived", 0]
    assert first.judged[0].began == f"the checkpoint of transaction {seq} at checkpoints/0/0"
    assert (first.judged[0].first_offset, first.judged[0].next_offset) == (
        start + 2,
        first.mailbox_end,
    )
    assert first.notes == [
        f"offsets {start} to {start + 2}: no complete checkpoint gives the state before it"
    ]


def test_a_mailbox_without_head_and_checkpoint_cannot_be_judged() -> None:
    recording, _ = cut_recording(checkpoint=False)
    report = verify(recording.log, recording.stages)
    assert report.word == "unjudged"
    assert not report.divergences
    start = recording.log.starts["arrived", 0]
    (unjudged,) = report.verdicts[0].unjudged
    assert (unjudged.first_offset, unjudged.next_offset) == (start, report.verdicts[0].mailbox_end)


def test_a_lost_mailbox_leaves_nothing_to_judge() -> None:
    recording = recorded(8)
    for topic in ("arrived", "passed"):
        for partition in range(2):
            end = recording.log.spans([(topic, partition)])[topic, partition].end
            recording.log.cut((topic, partition), end)
    report = verify(recording.log, recording.stages)
    assert report.word == "verified"
    assert [verdict.records for verdict in report.verdicts] == [0, 0, 0, 0]


@pytest.mark.parametrize("from_checkpoint", ["first", "last", "seq"])
def test_judging_can_begin_at_a_chosen_checkpoint(from_checkpoint: str) -> None:
    recording = recorded(8)
    seqs = [recording.checkpoint("first", 0)]
    for _ in range(2):
        for number in range(20):
            recording.event(f"later-{number}")
        recording.run()
        seqs.append(recording.checkpoint("first", 0))
    wanted = {"first": seqs[0], "last": seqs[2], "seq": seqs[1]}[from_checkpoint]
    choice = str(wanted) if from_checkpoint == "seq" else from_checkpoint
    for number in range(9):
        recording.event(f"last-{number}")
    recording.run()
    scope = Scope(stage="first", partition=0, from_checkpoint=choice)
    report = verify(recording.log, recording.stages, scope)
    assert report.word == "verified"
    assert f"of transaction {wanted} at" in report.verdicts[0].judged[0].began


def test_a_checkpoint_must_be_named_sensibly() -> None:
    with pytest.raises(ConfigError, match="expected first, last or the number of a transaction"):
        Scope(from_checkpoint="newest")


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("state_hash", lambda _: b"\0" * 32),
        ("chain", lambda _: b"\0" * 32),
        ("next_offset", lambda value: value + 1),
        ("now_ms", lambda value: value + 1),
        ("seq", lambda value: value - 1),
        ("seq", lambda value: value + 1_000),
        ("rows", lambda rows: rows[1:]),
    ],
)
def test_a_tampered_checkpoint_is_named(field: str, change: Any) -> None:
    recording, _ = cut_recording()
    records = recording.records(PLACE)
    record = records[0]
    part = CODEC.decode(record.value or b"")[1]
    part[field] = change(part[field])
    records[0] = record._replace(value=CODEC.encode("checkpoint_part", part))
    report = verify(recording.log, recording.stages)
    assert report.verdicts[0].divergence is not None
    assert report.verdicts[0].divergence.kind is DivergenceKind.CHECKPOINT_CHANGED
    assert report.verdicts[0].divergence.place == Position("checkpoints", 0, 0)


def test_a_part_that_does_not_decode_is_named() -> None:
    log = written((position_of({}), {}))
    log.topics["checkpoints"][0][0] = log.topics["checkpoints"][0][0]._replace(value=b"\xc3\x01")
    with pytest.raises(Exception, match="checkpoints/0/0: expected a checkpoint_part"):
        list(read_checkpoints(log, CODEC, PLACE, Span(0, 1), KEY))
