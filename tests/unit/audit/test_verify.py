"""What an audit judges, what it cannot judge, and what it leaves alone."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.audit.divergence import DivergenceKind
from streams.audit.log import LogRecord, Place, Span
from streams.audit.memory_log import MemoryLog
from streams.audit.plan import Scope
from streams.audit.verify import verify
from streams.core.record import Position
from streams.engine import FoldFailed, Memory, MemoryStore, fold_batch
from streams.errors import ConfigError, TopologyError
from tests.support.recorded import CODEC, Recording, bound_stages, recorded, small_topology


def test_a_log_in_which_nothing_has_happened_is_verified() -> None:
    recording = Recording()
    report = verify(recording.log, recording.stages)
    assert report.word == "verified"
    assert report.records == 0


def test_events_that_no_stage_has_folded_yet_are_not_judged() -> None:
    recording = recorded(2)
    recording.event("e1")
    report = verify(recording.log, recording.stages)
    assert report.word == "verified"
    first = [v for v in report.verdicts if v.stage == "first"]
    assert sum(v.mailbox_end - v.judged[-1].next_offset for v in first) == 1


def test_one_stage_partition_can_be_judged_alone() -> None:
    recording = recorded(2)
    report = verify(recording.log, recording.stages, Scope(stage="second", partition=1))
    assert [(v.stage, v.partition, v.word) for v in report.verdicts] == [("second", 1, "verified")]


def test_what_does_not_exist_is_said() -> None:
    recording = recorded(2)
    with pytest.raises(ConfigError, match="stage is 'third', expected one of first, second"):
        verify(recording.log, recording.stages, Scope(stage="third"))
    with pytest.raises(ConfigError, match="partition is 2, expected at most 1"):
        verify(recording.log, recording.stages, Scope(partition=2))
    del recording.log.topics["journal"]
    with pytest.raises(TopologyError, match="topic journal does not exist"):
        verify(recording.log, recording.stages)


# ---------------------------------------------------------------------- a log that moves on
@dataclass
class MovingLog(MemoryLog):
    """A log to which the stages go on writing whenever the audit looks for an end."""

    recording: Recording | None = None
    looks: int = field(default=0)

    def spans(self, places: Collection[Place], /) -> dict[Place, Span]:
        assert self.recording is not None
        self.looks += 1
        for number in range(12):
            self.recording.event(f"live-{self.looks}-{number % 5}")
        self.recording.run()
        return super().spans(places)


@given(st.integers(0, 20))
def test_what_is_written_meanwhile_is_neither_judged_nor_held_against_it(seed: int) -> None:
    still = recorded(seed)
    log = MovingLog(still.log.topics, still.log.starts, still.log.groups, still)
    still.log = log
    before = sum(memory.position.seq for memory in still.memories.values())
    report = verify(log, still.stages)
    assert [str(each) for each in report.divergences] == []
    assert log.looks == 3
    judged = sum(verdict.transactions for verdict in report.verdicts)
    assert before < judged < sum(memory.position.seq for memory in still.memories.values())


# ---------------------------------------------------------------------- compaction
def compacted(records: list[LogRecord], upto: int) -> list[LogRecord]:
    """What compaction makes of the records before index `upto`: the last one of each key."""
    last = {record.key: at for at, record in enumerate(records[:upto])}
    kept = [record for at, record in enumerate(records[:upto]) if last[record.key] == at]
    return [*kept, *records[upto:]]


@given(st.integers(0, 30), st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_a_compacted_changelog_is_as_good(
    seed: int, dice: random.Random, tombstones_gone: bool, head_gone: bool
) -> None:
    recording = recorded(seed)
    for name, partition in recording.memories:
        recording.checkpoint(name, partition)
    heads = {place: memory.position.next_offset for place, memory in recording.memories.items()}
    for number in range(20):
        recording.event(f"e{number}")
    recording.run()
    for (name, partition), head in heads.items():
        declared = recording.stages[name].declaration
        if head_gone:
            recording.log.cut((declared.source, partition), head)
        records = recording.records((declared.changelog, partition))
        kept = compacted(records, dice.randrange(len(records) + 1))
        if tombstones_gone:
            keys = [record.key for record in kept]
            kept = [r for r in kept if r.value is not None or keys.count(r.key) > 1]
        recording.log.topics[declared.changelog][partition] = kept
    report = verify(recording.log, recording.stages)
    assert [str(each) for each in report.divergences] == []
    assert report.word == "verified"


@given(st.integers(0, 30), st.randoms(use_true_random=False))
def test_a_row_that_compaction_left_must_still_be_right(seed: int, dice: random.Random) -> None:
    recording = recorded(seed)
    place = ("first-seen-changelog", dice.randrange(2))
    records = recording.records(place)
    kept = compacted(records, dice.randrange(len(records) + 1))
    rows = [at for at, record in enumerate(kept) if record.value is not None]
    at = dice.choice(rows)
    value = kept[at].value or b""
    kept[at] = kept[at]._replace(value=value[:-1] + bytes([value[-1] ^ 1]))
    recording.log.topics[place[0]][place[1]] = kept
    (found,) = verify(recording.log, recording.stages).divergences
    assert found.place == Position(*place, kept[at].offset)


# ---------------------------------------------------------------------- versions
def test_a_fold_version_that_is_not_known_here_cannot_be_judged() -> None:
    recording = recorded(3, version=2)
    stages = bound_stages(small_topology(version=1), "", 2)
    report = verify(recording.log, stages)
    assert report.word == "unjudged"
    for verdict in report.verdicts:
        (unjudged,) = verdict.unjudged
        assert (unjudged.first_offset, unjudged.next_offset) == (0, verdict.mailbox_end)
        assert unjudged.reason == f"folded by {verdict.stage}@2, known here: {verdict.stage}@1"


def test_a_checkpoint_lets_judging_go_on_after_another_versions_range() -> None:
    recording = recorded(3, version=1)
    recording.checkpoint("first", 1)
    ends = [recording.memories["first", p].position.next_offset for p in (0, 1)]
    recording.upgrade(2)
    for number in range(30):
        recording.event(f"new-{number}")
    recording.run()
    old = verify(recording.log, bound_stages(small_topology(version=1), "", 2))
    assert not old.divergences
    for partition in (0, 1):
        verdict = old.verdicts[partition]
        assert verdict.judged[0].next_offset == ends[partition]
        (unjudged,) = verdict.unjudged
        assert (unjudged.first_offset, unjudged.next_offset) == (
            ends[partition],
            verdict.mailbox_end,
        )
    new = verify(recording.log, bound_stages(small_topology(version=2), "", 2))
    assert not new.divergences
    without, with_checkpoint = new.verdicts[:2]
    assert not without.judged
    assert [each.reason for each in without.unjudged] == [
        "folded by first@1, known here: first@2",
        "no complete checkpoint gives the state before it",
    ]
    assert with_checkpoint.judged[0].first_offset == ends[1]
    assert with_checkpoint.judged[0].next_offset == with_checkpoint.mailbox_end
    assert len(with_checkpoint.unjudged) == 1


# ---------------------------------------------------------------------- skipped records
def halted() -> tuple[Recording, int, int]:
    """A recording with a record on which the fold raises, and the record's place."""
    recording = recorded(3)
    partition, offset = recording.event("poison", "broken")
    recording.event("after")
    with pytest.raises(FoldFailed):
        recording.run()
    return recording, partition, offset


def skip(recording: Recording, partition: int, offset: int) -> int:
    word = {
        "stage": "first",
        "topic": "arrived",
        "partition": partition,
        "offset": offset,
        "requested_by": "operator@host",
        "reason": "a bug",
    }
    return recording.append("arrived", partition, "stage_skip", "stage_skip", word, "skip")


def test_a_record_that_was_passed_over_on_request_is_verified() -> None:
    recording, partition, offset = halted()
    skip(recording, partition, offset)
    recording.run()
    report = verify(recording.log, recording.stages)
    assert report.word == "verified"
    verdict = report.verdicts[partition]
    assert verdict.judged[0].next_offset == verdict.mailbox_end > offset


def test_a_record_that_was_passed_over_without_request_is_named() -> None:
    recording, partition, offset = halted()
    store = recording.memories["first", partition].rows.store
    assert isinstance(store, MemoryStore)
    position = recording.memories["first", partition].position
    memory = Memory(recording.stages["first"], partition, store, position)
    records = recording.records(("arrived", partition))
    raws = [record for record in records if record.offset >= position.next_offset]
    recording.commit(memory, fold_batch(memory, raws, skips=frozenset({offset})))
    recording.memories["first", partition] = memory
    (found,) = verify(recording.log, recording.stages, Scope(stage="first")).divergences
    assert found.kind is DivergenceKind.SKIP_UNREQUESTED
    assert found.place == Position("arrived", partition, offset)


def test_a_fold_that_raises_where_it_once_did_not_is_named() -> None:
    recording, partition, offset = halted()
    skip(recording, partition, offset)
    recording.run()
    records = recording.records(("journal", partition))
    for at, record in enumerate(records):
        said = CODEC.decode(record.value or b"")[1]
        if said["skipped"]:
            unsaid = CODEC.encode("journal_entry", {**said, "skipped": []})
            records[at] = record._replace(value=unsaid)
    (found,) = verify(recording.log, recording.stages).divergences
    assert found.kind is DivergenceKind.FOLD_RAISED
    assert found.place == Position("arrived", partition, offset)
    assert "RuntimeError" in found.actual
    assert "a bug" not in str(found)


# ---------------------------------------------------------------------- the report
def test_the_report_as_json_holds_every_verdict() -> None:
    recording = recorded(2)
    recording.records(("notes", 0)).pop(3)
    said = verify(recording.log, recording.stages).as_json()
    assert said["verdict"] == "diverges"
    assert [each["stage"] for each in said["partitions"]] == ["first", "first", "second", "second"]
    (divergence,) = [each["divergence"] for each in said["partitions"] if each["divergence"]]
    assert divergence["kind"] == "missing_output"
    assert divergence["position"].startswith("notes/0/")
