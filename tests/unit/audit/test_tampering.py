"""Whatever single thing is changed in a log, the audit finds it and names its position."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.audit.divergence import Divergence, DivergenceKind
from streams.audit.log import LogRecord, Place
from streams.audit.verdict import Report
from streams.audit.verify import verify
from streams.core.record import Position
from streams.engine import POSITION_KEY
from tests.support.recorded import CODEC, Recording, event_of, recorded, renumbered
from topology.model import Edge

SEEDS = st.integers(0, 40)
DICE = st.randoms(use_true_random=False)
Kind = DivergenceKind


def audit(recording: Recording) -> Report:
    return verify(recording.log, recording.stages)


def at_place(recording: Recording, topic: str, partition: int, offset: int) -> Divergence:
    """The first divergence that the audit finds at a position; one upstream comes before others."""
    found = audit(recording).divergences
    position = Position(topic, partition, offset)
    assert position in [each.place for each in found], [str(each) for each in found]
    return next(each for each in found if each.place == position)


def outputs(recording: Recording) -> list[tuple[Place, int]]:
    """Every output of a stage, as its place and its index there."""
    return [
        ((topic, partition), at)
        for topic in ("notes", "passed", "dead")
        for partition in range(recording.partitions)
        for at, record in enumerate(recording.records((topic, partition)))
        if "fold" in dict(record.headers)
    ]


def origin(record: LogRecord) -> bytes:
    """The stage partition that wrote an output."""
    headers = dict(record.headers)
    return headers["fold"] + headers["cause"].rsplit(b"/", 2)[0]


def flipped(content: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << dice.randrange(8))]) + content[at + 1 :]


def put(recording: Recording, place: Place, records: list[LogRecord]) -> None:
    recording.log.topics[place[0]][place[1]] = renumbered(records)


def test_an_untouched_log_is_verified_to_its_last_record() -> None:
    recording = recorded(3)
    report = audit(recording)
    assert report.word == "verified"
    assert not report.divergences
    for verdict in report.verdicts:
        assert verdict.judged[-1].next_offset == verdict.mailbox_end
        assert not verdict.notes
    assert report.records == sum(
        len(records) for topic in ("arrived", "passed") for records in recording.log.topics[topic]
    )


# ---------------------------------------------------------------------- outputs
@given(SEEDS, DICE)
def test_one_flipped_bit_of_an_output_is_named(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    place, at = dice.choice(outputs(recording))
    record = recording.records(place)[at]
    part = dice.choice(["key", "value", "kind", "cause", "fold"])
    if part in ("key", "value"):
        changed = record._replace(**{part: flipped(getattr(record, part), dice)})
    else:
        headers = [(n, flipped(c, dice) if n == part else c) for n, c in record.headers]
        changed = record._replace(headers=headers)
    recording.records(place)[at] = changed
    if part in ("key", "value", "kind"):
        assert at_place(recording, *place, record.offset).kind is Kind.DIFFERENT_OUTPUT
    else:  # it now claims another origin: it is missing where it was, or strange where it is
        assert audit(recording).divergences


@given(SEEDS, DICE)
def test_a_dropped_output_is_named_by_its_cause(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    place, at = dice.choice(outputs(recording))
    records = recording.records(place)
    dropped = records.pop(at)
    put(recording, place, records)
    missing = [f for f in audit(recording).divergences if f.kind is Kind.MISSING_OUTPUT]
    (named,) = [f for f in missing if f.cause == dict(dropped.headers)["cause"].decode()]
    assert (named.place.topic, named.place.partition) == place
    assert named.place.offset <= dropped.offset


@given(SEEDS, DICE)
def test_a_duplicated_output_is_named_where_it_lies(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    place, at = dice.choice(outputs(recording))
    records = recording.records(place)
    again = dice.randrange(at + 1, len(records) + 1)
    records.insert(again, records[at])
    put(recording, place, records)
    assert at_place(recording, *place, again).kind is Kind.DUPLICATE_OUTPUT


@given(SEEDS, DICE)
def test_two_swapped_outputs_are_named_at_the_first(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    place, first = dice.choice(outputs(recording))
    records = recording.records(place)
    later = [
        at
        for at in range(first + 1, len(records))
        if "fold" in dict(records[at].headers) and origin(records[at]) == origin(records[first])
    ]
    if not later:
        return
    second = dice.choice(later)
    records[first], records[second] = records[second], records[first]
    put(recording, place, records)
    assert at_place(recording, *place, first).kind is Kind.OUT_OF_ORDER


@given(SEEDS, DICE)
def test_an_output_in_another_partition_is_named(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    place, at = dice.choice(outputs(recording))
    records = recording.records(place)
    moved = records.pop(at)
    put(recording, place, records)
    other = (place[0], 1 - place[1])
    into = recording.records(other)
    index = dice.randrange(len(into) + 1)
    into.insert(index, moved)
    put(recording, other, into)
    wrong = (Kind.WRONG_PARTITION, Kind.UNEXPECTED_OUTPUT, Kind.OUT_OF_ORDER)
    assert at_place(recording, *other, index).kind in wrong


@pytest.mark.parametrize(
    ("fold", "cause", "kind"),
    [
        (b"first@1", b"arrived/0/999999/0", Kind.UNEXPECTED_OUTPUT),
        (b"first@1", b"arrived/0/0/77", Kind.UNEXPECTED_OUTPUT),
        (b"first@1", b"arrived/7/0/0", Kind.UNEXPECTED_OUTPUT),
        (b"first@1", b"notes/0/0/0", Kind.UNEXPECTED_OUTPUT),
        (b"first@1", b"nonsense", Kind.UNEXPECTED_OUTPUT),
        (b"third@1", b"arrived/0/0/0", Kind.UNEXPECTED_OUTPUT),
    ],
)
def test_a_forged_output_is_named(fold: bytes, cause: bytes, kind: DivergenceKind) -> None:
    recording = recorded(1)
    value = CODEC.encode("lifecycle_event_unmatched", event_of("forged"))
    headers = [("kind", b"seen"), ("cause", cause), ("fold", fold)]
    offset = recording.log.append(("notes", 0), recording.now_ms, b"all", value, headers)
    (found,) = audit(recording).divergences
    assert (found.kind, found.place) == (kind, Position("notes", 0, offset))


def test_a_record_without_a_fold_is_named_where_only_stages_write() -> None:
    recording = recorded(1)
    recording.append("notes", 0, "seen", "lifecycle_event_unmatched", event_of("x"), "x")
    end = len(recording.records(("notes", 0)))
    (found,) = audit(recording).divergences
    assert (found.kind, found.place) == (Kind.UNEXPECTED_OUTPUT, Position("notes", 0, end - 1))
    assert "no fold" in found.actual


def test_what_edges_write_is_none_of_the_audits_business() -> None:
    recording = recorded(1)
    edge = Edge(name="edge", writes=("notes",), doc="Writes notes, too.")
    for stage in recording.stages.values():
        stage.topology = replace(stage.topology, edges=(edge,))
    recording.append("notes", 0, "seen", "lifecycle_event_unmatched", event_of("x"), "x")
    assert audit(recording).word == "verified"


# ---------------------------------------------------------------------- mailbox and journal
@given(SEEDS, DICE)
def test_a_changed_mailbox_record_breaks_the_chain_at_the_latest(
    seed: int, dice: random.Random
) -> None:
    recording = recorded(seed)
    partition = dice.choice([p for p in (0, 1) if recording.records(("arrived", p))])
    records = recording.records(("arrived", partition))
    at = dice.randrange(len(records))
    record = records[at]
    part = dice.choice(["key", "value", "timestamp"])
    content = record.timestamp + 1 if part == "timestamp" else flipped(getattr(record, part), dice)
    records[at] = record._replace(**{part: content})
    (verdict,) = [
        v for v in audit(recording).verdicts if v.divergence is not None and v.stage == "first"
    ]
    assert verdict.partition == partition
    assert verdict.judged[-1].next_offset <= record.offset


@given(SEEDS, DICE)
def test_a_lost_mailbox_record_is_named(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    records = recording.records(("arrived", 0))
    at = dice.randrange(len(records))
    lost = records.pop(at)
    found = [f for f in audit(recording).divergences if f.kind is Kind.MAILBOX_CHANGED]
    assert found[0].place.topic == "arrived"
    assert found[0].place.offset <= lost.offset + 1


@given(SEEDS, DICE)
def test_a_lost_or_repeated_journal_entry_is_named(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    partition = dice.randrange(2)
    records = recording.records(("journal", partition))
    at = dice.randrange(len(records))
    followers = [r for r in records[at + 1 :] if r.key == records[at].key]
    if dice.random() < 0.5:
        records.insert(at, records[at])
        put(recording, ("journal", partition), records)
        assert at_place(recording, "journal", partition, at + 1).kind is Kind.JOURNAL_GAP
        return
    del records[at]
    put(recording, ("journal", partition), records)
    found = audit(recording).divergences
    if followers:
        position = Position("journal", partition, followers[0].offset - 1)
        assert [f.kind for f in found if f.place == position] == [Kind.JOURNAL_GAP]
    else:  # nothing in the journal shows it: what the transaction wrote does
        assert found


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("chain", b"\1" * 32, Kind.CHAIN_BROKEN),
        ("state_hash", b"\1" * 32, Kind.CHAIN_BROKEN),
        ("now_ms", 5, Kind.JOURNAL_CHANGED),
        ("outputs", 77, Kind.JOURNAL_CHANGED),
        ("rows", 77, Kind.JOURNAL_CHANGED),
        ("records", 77, Kind.MAILBOX_CHANGED),
        ("first_offset", 0, Kind.JOURNAL_CHANGED),
        ("seq", 1, Kind.JOURNAL_GAP),
        ("partition", 1, Kind.JOURNAL_CHANGED),
    ],
)
def test_a_changed_journal_entry_is_named(field: str, value: Any, kind: DivergenceKind) -> None:
    recording = recorded(5)
    records = recording.records(("journal", 0))
    at = [i for i, record in enumerate(records) if record.key == b"first/0"][3]
    said = CODEC.decode(records[at].value or b"")[1]
    changed = CODEC.encode("journal_entry", {**said, field: value})
    records[at] = records[at]._replace(value=changed)
    (found,) = [f for f in audit(recording).divergences if f.kind is kind]
    if kind is Kind.MAILBOX_CHANGED:
        assert found.place == Position("arrived", 0, said["first_offset"])
    else:
        assert found.place == Position("journal", 0, at)


def test_a_journal_entry_that_does_not_decode_is_named() -> None:
    recording = recorded(5)
    records = recording.records(("journal", 1))
    records[2] = records[2]._replace(value=b"\xc3\x01garbage")
    assert at_place(recording, "journal", 1, 2).kind is Kind.JOURNAL_CHANGED


# ---------------------------------------------------------------------- rows
@given(SEEDS, DICE)
def test_a_changed_row_is_named(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    place = (f"{dice.choice(['first', 'second'])}-seen-changelog", dice.randrange(2))
    records = recording.records(place)
    at = dice.randrange(len(records))
    record = records[at]
    if record.value is None or dice.random() < 0.3:
        changed = record._replace(value=b"" if record.value is None else None)
    else:
        changed = record._replace(value=flipped(record.value, dice))
    records[at] = changed
    at_place(recording, *place, record.offset)


@given(SEEDS, DICE)
def test_a_forged_row_is_named(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    place = ("first-seen-changelog", dice.randrange(2))
    records = recording.records(place)
    at = dice.randrange(len(records) + 1)
    records.insert(at, LogRecord(0, recording.now_ms, b"s:forged", b"value", []))
    put(recording, place, records)
    found = at_place(recording, *place, at)
    assert found.kind is Kind.UNEXPECTED_ROW


@given(SEEDS, DICE)
def test_the_last_record_of_a_row_is_missed(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    partition = dice.randrange(2)
    place = ("first-seen-changelog", partition)
    store: Any = recording.memories["first", partition].rows.store
    key = dice.choice(sorted(store.rows))
    records = recording.records(place)
    at = max(i for i, record in enumerate(records) if record.key == key)
    del records[at]
    put(recording, place, records)
    (found,) = audit(recording).divergences
    assert found.kind is Kind.MISSING_ROW
    assert found.place == Position(*place, at)
    assert repr(key.decode()) in found.expected


def test_rows_of_a_deleted_event_must_be_deleted_in_the_changelog() -> None:
    recording = recorded(2)
    place = ("first-seen-changelog", 0)
    records = recording.records(place)
    at = max(i for i, record in enumerate(records) if record.value is None)
    key = records[at].key
    if any(record.key == key for record in records[at + 1 :]):
        pytest.fail("the case needs a row whose deletion is its last record")
    written = max(i for i, record in enumerate(records[:at]) if record.key == key)
    del records[at]
    put(recording, place, records)
    (found,) = audit(recording).divergences
    assert (found.kind, found.place) == (Kind.UNEXPECTED_ROW, Position(*place, written))


def test_the_last_position_row_is_missed() -> None:
    recording = recorded(2)
    place = ("second-seen-changelog", 1)
    records = recording.records(place)
    assert records[-1].key == POSITION_KEY
    del records[-1]
    assert [f.kind for f in audit(recording).divergences] == [Kind.UNEXPECTED_ROW]
    while records[-1].key != POSITION_KEY:
        del records[-1]
    (found,) = audit(recording).divergences
    assert found.kind is Kind.MISSING_ROW
    assert "position row" in found.expected


# ---------------------------------------------------------------------- offsets
@pytest.mark.parametrize("by", [-1, 1])
def test_a_moved_group_offset_is_named(by: int) -> None:
    recording = recorded(4)
    key = ("harn.first", "arrived", 1)
    moved = recording.log.groups[key] + by
    recording.log.groups[key] = moved
    (found,) = audit(recording).divergences
    assert (found.kind, found.place) == (Kind.OFFSET_MISMATCH, Position("arrived", 1, moved))


def test_an_expired_group_offset_is_remarked() -> None:
    recording = recorded(4)
    del recording.log.groups["harn.first", "arrived", 1]
    report = audit(recording)
    assert report.word == "verified"
    assert [v.notes for v in report.verdicts if v.notes] == [
        ["group harn.first has no committed offset"]
    ]


# ---------------------------------------------------------------------- what the texts say
def change_value(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Divergence:
    recording = recorded(6)
    place, at = next(found for found in outputs(recording) if found[0][0] == "notes")
    record = recording.records(place)[at]
    schema, value = CODEC.decode(record.value or b"")
    changed = record._replace(value=CODEC.encode(schema, change(value)))
    recording.records(place)[at] = changed
    return at_place(recording, *place, record.offset)


def test_the_first_differing_field_is_told_without_its_content() -> None:
    found = change_value(lambda value: {**value, "provider": "a secret"})
    assert "provider = a text of 1 characters" in found.expected
    assert "provider = a text of 8 characters" in found.actual
    assert "secret" not in str(found)


def test_the_note_tells_a_changed_output_from_a_changed_fold() -> None:
    found = change_value(lambda value: {**value, "trigger_id": "t"})
    assert found.note is not None
    assert "the journal agrees with the recomputation" in found.note
    recording = recorded(6)
    records = recording.records(("arrived", 0))
    body = CODEC.encode("lifecycle_event_unmatched", event_of("other"))
    records[0] = records[0]._replace(value=body)
    first = audit(recording).divergences[0]
    assert first.note == "the journal does not agree with the recomputation either"
