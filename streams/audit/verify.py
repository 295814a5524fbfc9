"""`harn audit verify`: recompute every fold over its mailbox, and compare all that was written.

The log moves on meanwhile, so ends are fixed first, in an order that makes them fit together:

1. the groups' offsets;
2. the journal's ends: what lies before them is judged;
3. the ends of mailboxes, outputs, changelogs and checkpoints: everything judged lies before them;
4. the journal's ends again: they witness which transactions ended meanwhile, so that an output
   which none of them covers is told from one that was merely written while the audit began.

Source: DESIGN "Proof"; law 6.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streams.audit.checkpoint import Checkpoint, read_checkpoints
from streams.audit.journal import journal_key, journal_topic, read_journal
from streams.audit.log import LogReader, Place, Span
from streams.audit.output_check import OutputCheck
from streams.audit.output_diagnosis import Diagnosis
from streams.audit.output_index import ENTRY, OutputIndex
from streams.audit.partition import Evidence, PartitionAudit
from streams.audit.row_check import RowCheck
from streams.audit.spool import Spool
from streams.audit.verdict import Report, Verdict
from streams.engine import BoundStage
from streams.errors import ConfigError, TopologyError
from topology import TopicRole, Topology

__all__ = ["FIRST", "LAST", "Scope", "verify"]

FIRST = "first"
LAST = "last"

_CLOCK_SLACK_MS = 3_600_000
"""A checkpoint bears its writer's time, a mailbox record the broker's: an hour is plenty."""

Progress = Callable[[str], None]
"""Is told what is being read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What to judge.

    `stage` and `partition` None mean all.  `from_checkpoint` is `first` or `last`, the number of a
    transaction, or None: the empty state where the mailbox still goes back to it, else the first.
    """

    stage: str | None = None
    partition: int | None = None
    from_checkpoint: str | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for values that mean nothing."""
        choice = self.from_checkpoint
        if choice is not None and choice not in (FIRST, LAST) and not choice.isdecimal():
            raise ConfigError(
                f"checkpoint is {choice!r}, expected {FIRST}, {LAST} or the number of a transaction"
            )


def verify(
    reader: LogReader,
    stages: Mapping[str, BoundStage],
    scope: Scope | None = None,
    progress: Progress = lambda _text: None,
) -> Report:
    """Judge stage partitions against the log.

    Args:    stages: the stages whose folds are known, by name.
    Returns: a verdict per stage partition; divergences are in them, not raised.
    Raises:  ConfigError for a stage or partition that does not exist; TopologyError when a topic is
             missing; BrokerError when the log is out of reach.
    Cost:    every record of the stages' topics is read once or twice; memory is bounded by the rows
             of the largest partition.
    """
    started_s = time.monotonic()
    audit = _Audit(reader, stages, scope or Scope(), progress)
    with Spool(ENTRY) as spool:
        index = audit.index(spool)
        verdicts = [
            audit.judge(stage, partition, index)
            for stage, partitions in audit.chosen.items()
            for partition in sorted(partitions)
        ]
    read = index.records + sum(each.records + each.rows + each.transactions for each in verdicts)
    seconds = time.monotonic() - started_s
    return Report(verdicts, index.strays, index.strays_count, read, seconds)


class _Audit:
    """One audit: the ends it fixed, and where everything lies."""

    def __init__(
        self,
        reader: LogReader,
        stages: Mapping[str, BoundStage],
        scope: Scope,
        progress: Progress,
    ) -> None:
        self._reader = reader
        self._stages = stages
        self._scope = scope
        self._progress = progress
        self._topology: Topology = next(iter(stages.values())).topology
        self._journal = journal_topic(self._topology)
        self._checkpoints = _topic_of(self._topology, TopicRole.CHECKPOINT)
        names = self._choose_stages()
        self._counts = self._count_partitions(names)
        self.chosen = self._choose_partitions(names)
        self._fix_ends()

    def _choose_stages(self) -> list[str]:
        stage = self._scope.stage
        if stage is None:
            return list(self._stages)
        if stage not in self._stages:
            raise ConfigError(f"stage is {stage!r}, expected one of {', '.join(self._stages)}")
        return [stage]

    def _choose_partitions(self, names: list[str]) -> dict[str, frozenset[int]]:
        """Return the partitions to judge, by stage."""
        wanted = self._scope.partition
        chosen: dict[str, frozenset[int]] = {}
        for name in names:
            known = range(self._stages[name].partitions)
            chosen[name] = frozenset(p for p in known if wanted in (None, p))
        if not any(chosen.values()):
            most = max(self._stages[name].partitions for name in names)
            raise ConfigError(f"partition is {wanted}, expected at most {most - 1}")
        return chosen

    def _count_partitions(self, names: list[str]) -> dict[str, int]:
        topics = {self._journal, self._checkpoints}
        for name in names:
            declared = self._stages[name].declaration
            topics |= {declared.source, declared.changelog, declared.quarantine, *declared.sinks}
        counts = {topic: self._reader.partitions(topic) for topic in sorted(topics)}
        missing = [f"topic {topic} does not exist" for topic, count in counts.items() if not count]
        if missing:
            remedy = "name the cluster that the stages write to, or run `harn topology apply`"
            raise TopologyError(missing, remedy=remedy)
        return counts

    def _fix_ends(self) -> None:
        self._progress("fixing the ends of all logs")
        self._committed: dict[str, dict[int, int]] = {}
        for name, partitions in self.chosen.items():
            declared = self._stages[name].declaration
            self._committed[name] = self._reader.committed(
                declared.group, declared.source, sorted(partitions)
            )
        journal = self._places({self._journal})
        self._judged = self._reader.spans(journal)
        self._spans = self._reader.spans(self._places(set(self._counts) - {self._journal}))
        self._witnessed = self._reader.spans(journal)

    def _places(self, topics: set[str]) -> list[Place]:
        return [(topic, p) for topic in sorted(topics) for p in range(self._counts[topic])]

    def index(self, spool: Spool) -> OutputIndex:
        """Note every output of the chosen stage partitions."""
        declared = self._topology.stages
        partitions = {name: self._stages[name].partitions for name in self.chosen}
        index = OutputIndex(spool, declared, self.chosen, partitions)
        written: set[str] = set()
        for name in self.chosen:
            stage = self._stages[name].declaration
            written |= {*stage.sinks, stage.quarantine}
        for place in self._places(written):
            self._progress(f"reading outputs in {place[0]}/{place[1]}")
            index.scan(place, self._reader.read(place, *self._spans[place]))
        return index

    def judge(self, name: str, partition: int, index: OutputIndex) -> Verdict:
        """Judge one stage partition."""
        stage = self._stages[name]
        self._progress(f"recomputing {name}/{partition}")
        lanes = index.lanes(name, partition)
        diagnosis = Diagnosis(self._reader, stage.codec, lanes)
        changelog = (stage.declaration.changelog, partition)
        audit = PartitionAudit(
            self._reader,
            stage,
            {stage.declaration.fold_id: stage},
            self._evidence(stage, partition),
            OutputCheck(lanes, self._counts, diagnosis),
            RowCheck(self._reader, stage.codec, changelog, self._spans[changelog]),
        )
        return audit.run()

    def _evidence(self, stage: BoundStage, partition: int) -> Evidence:
        name, source = stage.declaration.name, stage.declaration.source
        mailbox = (source, partition)
        journal = (self._journal, partition % self._counts[self._journal])
        judged, witnessed = self._judged[journal], self._witnessed[journal]
        key = journal_key(name, partition)
        span = Span(judged.start, witnessed.end)
        checkpoints = self._read_checkpoints(stage, partition, key)
        return Evidence(
            mailbox=mailbox,
            mailbox_span=self._spans[mailbox],
            entries=read_journal(self._reader, stage.codec, journal, span, key),
            journal_start=judged.start,
            judged_end=judged.end,
            checkpoints=checkpoints,
            committed=self._committed[name].get(partition),
            first_seq=self._first_seq(checkpoints),
        )

    def _read_checkpoints(self, stage: BoundStage, partition: int, key: bytes) -> list[Checkpoint]:
        place = (self._checkpoints, partition % self._counts[self._checkpoints])
        start, end = self._spans[place]
        mailbox = (stage.declaration.source, partition)
        mailbox_start, mailbox_end = self._spans[mailbox]
        if mailbox_start > 0:
            # Checkpoints from before the mailbox's head went are of no use, and may be many.
            for records in self._reader.read(mailbox, mailbox_start, mailbox_end):
                useful_ms = records[0].timestamp - _CLOCK_SLACK_MS
                start = max(start, self._reader.offset_at(place, useful_ms))
                break
        return list(read_checkpoints(self._reader, stage.codec, place, Span(start, end), key))

    def _first_seq(self, checkpoints: list[Checkpoint]) -> int:
        choice = self._scope.from_checkpoint
        sound = [each.position.seq for each in checkpoints if each.problem is None]
        if choice is None or (choice in (FIRST, LAST) and not sound):
            return 1
        if choice.isdecimal():
            return int(choice) + 1
        return (sound[0] if choice == FIRST else sound[-1]) + 1


def _topic_of(topology: Topology, role: TopicRole) -> str:
    return next(topic.name for topic in topology.topics if topic.role is role)
