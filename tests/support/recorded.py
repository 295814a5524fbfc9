"""A log that stages wrote: two chained stages of a small topology, run over a log in memory.

The stages are made so that everything an audit compares occurs: outputs by key and to an explicit
partition, several writers in one topic, rows written, changed and deleted, timers, rejected
and skipped records.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from streams.audit.checkpoint import encode_checkpoint
from streams.audit.log import LogRecord, Place
from streams.audit.memory_log import MemoryLog
from streams.codec import Codec
from streams.core.placement import partition_of
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, Fold, State
from streams.engine import (
    POSITION_KEY,
    BoundStage,
    FoldFailed,
    Memory,
    MemoryStore,
    Step,
    fold_batch,
    settle,
)
from topology import Cleanup, RetentionRule, RowType, Stage, Table, Topic, TopicRole, Topology
from topology.application import changelog_of

WINDOW_MS = 400
CODEC = Codec()


def small_topology(prefix: str = "", *, version: int = 1) -> Topology:
    """Stage `first` remembers events and passes them on; stage `second` counts them down."""
    arrived, passed, notes = f"{prefix}arrived", f"{prefix}passed", f"{prefix}notes"
    dead = f"{prefix}dead"
    unmatched, repeated = "lifecycle_event_unmatched", "lifecycle_event_deduplicated"
    topics = (
        _topic(arrived, TopicRole.MAILBOX, ("event", unmatched)),
        _topic(passed, TopicRole.MAILBOX, ("event", unmatched)),
        _topic(
            notes, TopicRole.OUTPUT, ("repeat", repeated), ("gone", unmatched), ("seen", unmatched)
        ),
        _topic(dead, TopicRole.OUTPUT, ("record_quarantined", "record_quarantined")),
        _topic(f"{prefix}journal", TopicRole.JOURNAL, ("journal_entry", "journal_entry")),
        _topic(
            f"{prefix}checkpoints", TopicRole.CHECKPOINT, ("checkpoint_part", "checkpoint_part")
        ),
    )
    row = RowType(prefix="s", schema="row_seen", doc="A seen event.", due_field="expires_at_ms")
    stages = tuple(
        Stage(
            name=name,
            version=version,
            role=f"{prefix}{name}",
            source=source,
            sinks=sinks,
            table=Table(name="seen", rows=(row,)),
            quarantine=dead,
            doc="A stage of a test.",
        )
        for name, source, sinks in (
            ("first", arrived, (passed, notes)),
            ("second", passed, (notes,)),
        )
    )
    return Topology(
        topics=(*topics, *(changelog_of(stage, topics) for stage in stages)), stages=stages
    )


def _topic(name: str, role: TopicRole, *kinds: tuple[str, str]) -> Topic:
    return Topic(
        name=name,
        role=role,
        key="event id",
        doc="A topic of a test.",
        kinds=kinds,
        cleanup=Cleanup.DELETE,
        retention=RetentionRule.AUDIT,
    )


def _fold(passed: str | None, notes: str) -> Fold:
    def on_record(state: State, record: Record) -> Answer:
        event: dict[str, Any] = record.value
        event_id: str = event["event_id"]
        if event["provider"] == "broken":
            raise RuntimeError("a bug")
        if event["provider"] == "unwanted":
            return Rejection("TST-001", "nobody wants it")
        key = f"s:{event_id}"
        seen = state.rows.get(key)
        state.rows.put(key, {"event_id": event_id, "expires_at_ms": state.now_ms + WINDOW_MS})
        if seen is not None:
            value = {"event_id": event_id, "provider": "p", "first_event_id": seen["event_id"]}
            value["dedupe_key"] = f"{seen['expires_at_ms']}"
            return [Output(notes, "repeat", event_id, value, headers=(("tenant_id", "t1"),))]
        outputs = [Output(notes, "seen", "all", event, partition=state.partition)]
        if passed is not None:
            outputs.insert(0, Output(passed, "event", event_id, event))
        return outputs

    def on_due(state: State, key: str, row: Any, _record: Record, /) -> Iterable[Output]:
        state.rows.delete(key)
        return [Output(notes, "gone", row["event_id"], event_of(row["event_id"]))]

    return Fold(on_record=on_record, on_due=on_due)


def event_of(event_id: str, provider: str = "p") -> dict[str, Any]:
    """The value of an event."""
    return {
        "event_id": event_id,
        "provider": provider,
        "event_kind": "k",
        "trigger_id": None,
        "replay_of_event_id": None,
    }


def bound_stages(topology: Topology, prefix: str, partitions: int) -> dict[str, BoundStage]:
    """The stages of `small_topology`, bound to their folds."""
    first, second = topology.stages
    notes = f"{prefix}notes"
    folds = {"first": _fold(second.source, notes), "second": _fold(None, notes)}
    return {
        stage.name: BoundStage(stage, folds[stage.name], topology, CODEC, partitions)
        for stage in (first, second)
    }


@dataclass
class Recording:
    """A small cluster in memory: the log, the stages, and where each stage partition stands."""

    partitions: int = 2
    seed: int = 0
    prefix: str = ""
    version: int = 1
    log: MemoryLog = field(default_factory=MemoryLog)
    now_ms: int = 1_700_000_000_000

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.topology = small_topology(self.prefix, version=self.version)
        for topic in self.topology.topics:
            self.log.create(topic.name, self.partitions)
        self.stages = bound_stages(self.topology, self.prefix, self.partitions)
        self.memories = {
            (name, partition): Memory(stage, partition)
            for name, stage in self.stages.items()
            for partition in range(self.partitions)
        }

    # ------------------------------------------------------------------ writing
    def append(
        self, topic: str, partition: int, kind: str, schema: str, value: Any, key: str
    ) -> int:
        """Append as an edge does: without cause and fold."""
        self.now_ms += self.dice.randrange(0, 40)
        headers = [("kind", kind.encode())]
        body = CODEC.encode(schema, value)
        place = (f"{self.prefix}{topic}", partition)
        return self.log.append(place, self.now_ms, key.encode(), body, headers)

    def event(self, event_id: str, provider: str = "p") -> tuple[int, int]:
        """Append an event to the first mailbox; return partition and offset."""
        partition = partition_of(event_id.encode(), self.partitions)
        value = event_of(event_id, provider)
        schema = "lifecycle_event_unmatched"
        return partition, self.append("arrived", partition, "event", schema, value, event_id)

    def run(self) -> None:
        """Let the stages work, in any order and in batches of any size, until nothing waits."""
        while ready := [place for place in self.memories if self._waiting(*place)]:
            self.step(*self.dice.choice(ready))

    def _waiting(self, name: str, partition: int) -> list[LogRecord]:
        source = self.stages[name].declaration.source
        after = self.memories[name, partition].position.next_offset
        return [r for r in self.log.topics[source][partition] if r.offset >= after]

    def step(self, name: str, partition: int) -> Step:
        """Let one stage partition commit one batch."""
        waiting = self._waiting(name, partition)
        raws = waiting[: self.dice.randrange(1, 7)]
        skips = self._skips(name, waiting)
        memory = self.memories[name, partition]
        store = memory.rows.store
        try:
            step = fold_batch(memory, raws, skips=skips)
        except FoldFailed as failed:
            memory = Memory(self.stages[name], partition, store, memory.position)
            self.memories[name, partition] = memory
            if failed.index == 0:
                raise
            step = fold_batch(memory, raws[: failed.index], skips=skips)
        self.commit(memory, step)
        return step

    def _skips(self, name: str, waiting: list[LogRecord]) -> frozenset[int]:
        decoded = (
            CODEC.decode(r.value or b"") for r in waiting if ("kind", b"stage_skip") in r.headers
        )
        return frozenset(value["offset"] for _, value in decoded if value["stage"] == name)

    def commit(self, memory: Memory, step: Step) -> None:
        """Write what a transaction writes."""
        self.now_ms += self.dice.randrange(0, 3)
        declared, partition = memory.stage.declaration, memory.partition
        for topic, explicit, key, value, headers in step.outputs:
            home = partition_of(key, self.partitions) if explicit is None else explicit
            self.log.append((topic, home), self.now_ms, key, value, list(headers))
        changelog = (declared.changelog, partition)
        for key, value in step.rows:
            self.log.append(changelog, self.now_ms, key, value, [])
        said = step.position_headers
        self.log.append(changelog, self.now_ms, POSITION_KEY, step.position_row, said)
        journal = (f"{self.prefix}journal", partition)
        key = f"{declared.name}/{partition}".encode()
        self.log.append(journal, self.now_ms, key, step.journal, [("kind", b"journal_entry")])
        self.log.groups[declared.group, declared.source, partition] = step.position.next_offset
        settle(memory, step)

    def checkpoint(self, name: str, partition: int) -> int:
        """Write a checkpoint of one stage partition; return the seq that it stands for."""
        memory = self.memories[name, partition]
        store = memory.rows.store
        assert isinstance(store, MemoryStore)
        key = f"{name}/{partition}".encode()
        parts = encode_checkpoint(CODEC, name, partition, memory.position, store.items())
        for part in parts:
            place = (f"{self.prefix}checkpoints", partition)
            self.log.append(place, self.now_ms, key, part, [("kind", b"checkpoint_part")])
        return memory.position.seq

    def upgrade(self, version: int) -> None:
        """Go on with another version of the folds."""
        self.version = version
        self.topology = small_topology(self.prefix, version=version)
        self.stages = bound_stages(self.topology, self.prefix, self.partitions)
        for (name, partition), memory in self.memories.items():
            again = Memory(self.stages[name], partition, memory.rows.store, memory.position)
            self.memories[name, partition] = again

    # ------------------------------------------------------------------ tampering
    def records(self, place: Place) -> list[LogRecord]:
        """The list of a partition, to be changed at will."""
        return self.log.topics[place[0]][place[1]]


def recorded(seed: int = 0, *, events: int = 60, prefix: str = "", version: int = 1) -> Recording:
    """Return a log with `events` events, some repeated, some expired, some rejected."""
    recording = Recording(seed=seed, prefix=prefix, version=version)
    for number in range(events):
        event_id = f"e{recording.dice.randrange(0, max(2, events // 2))}"
        provider = "unwanted" if recording.dice.random() < 0.1 else "p"
        recording.event(event_id, provider)
        if number % 20 == 19:
            recording.run()
    recording.run()
    return recording


def renumbered(records: list[LogRecord]) -> list[LogRecord]:
    """Return the records with offsets from 0 without gap, as a rewritten topic would have them."""
    return [record._replace(offset=offset) for offset, record in enumerate(records)]
