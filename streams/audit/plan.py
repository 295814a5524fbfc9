"""What one audit judges, and the ends of all logs that it holds to.

The log moves on while it is read, so ends are fixed first, in an order that makes them fit:

1. the groups' offsets;
2. the journal's ends: what lies before them is judged;
3. the ends of mailboxes, outputs, changelogs and checkpoints: everything judged lies before them;
4. the journal's ends again: they witness which transactions ended meanwhile, so that an output
   which none of them covers is told from one that was merely written while the audit began.

Source: DESIGN "Proof".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streams.audit.journal import journal_topic
from streams.audit.log import LogReader, Place, Span
from streams.audit.output_index import Writers
from streams.engine import BoundStage
from streams.errors import ConfigError, TopologyError
from topology import Cleanup, Stage, TopicRole, Topology
from topology.family import family_of

__all__ = ["FIRST", "LAST", "Plan", "Scope", "make_plan"]

FIRST = "first"
LAST = "last"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The stage partitions to judge, in order, and what the log held when the audit began.

    `counts` are partition counts by topic.  `committed` are group offsets by stage and partition.
    `spans` hold everything but the journal, which has one span to judge and one to witness.
    """

    scope: Scope
    journal: str
    checkpoints: str
    chosen: Mapping[str, frozenset[int]]
    counts: Mapping[str, int]
    committed: Mapping[str, Mapping[int, int]]
    judged: Mapping[Place, Span]
    spans: Mapping[Place, Span]
    witnessed: Mapping[Place, Span]
    outputs: tuple[Place, ...]
    writers: Writers

    @property
    def records_max(self) -> int:
        """How many records there are to read at most."""
        return sum(span.end - span.start for span in self.spans.values())

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Every stage partition to judge."""
        return [(name, p) for name, numbers in self.chosen.items() for p in sorted(numbers)]


def make_plan(reader: LogReader, stages: Mapping[str, BoundStage], scope: Scope) -> Plan:
    """Choose what is judged and fix the ends.

    Raises: ConfigError for a stage or partition that does not exist; TopologyError when a topic is
            missing; BrokerError when the log is out of reach.
    """
    topology: Topology = next(iter(stages.values())).topology
    journal, checkpoints = journal_topic(topology), _topic_of(topology, TopicRole.CHECKPOINT)
    names = _choose_stages(stages, scope)
    declared = [stages[name].declaration for name in names]
    writes = {stage.name: _written(reader, topology, stage) for stage in topology.stages}
    written = sorted({topic for stage in declared for topic in writes[stage.name]})
    folded = {t for stage in declared for t in (stage.source, stage.changelog)}
    counts = _count_partitions(reader, {journal, checkpoints, *written, *folded})
    chosen = _choose_partitions(stages, names, scope)

    def places(topics: set[str]) -> list[Place]:
        return [(topic, p) for topic in sorted(topics) for p in range(counts[topic])]

    committed = {
        stage.name: reader.committed(stage.group, stage.source, sorted(chosen[stage.name]))
        for stage in declared
    }
    judged = reader.spans(places({journal}))
    spans = reader.spans(places(set(counts) - {journal}))
    witnessed = reader.spans(places({journal}))
    return Plan(
        scope=scope,
        journal=journal,
        checkpoints=checkpoints,
        chosen=chosen,
        counts=counts,
        committed=committed,
        judged=judged,
        spans=spans,
        witnessed=witnessed,
        outputs=tuple(places(set(written))),
        writers=Writers(
            declared={stage.name: stage for stage in topology.stages},
            writes=writes,
            audited=chosen,
            partitions={name: stages[name].partitions for name in names},
            shared=_shared(topology) | {each for each in written if _is_queue(topology, each)},
        ),
    )


def _written(reader: LogReader, topology: Topology, stage: Stage) -> frozenset[str]:
    """Return the topics that a stage may have written to: of its families those that exist.

    A compacted topic does not keep what was written, so it is not judged; the rows that its records
    are made of are.
    """
    sinks = (topology.topic(name) for name in (*stage.sinks, stage.quarantine))
    fixed = {topic.name for topic in sinks if topic.cleanup is not Cleanup.COMPACT}
    if not stage.family_sinks:
        return frozenset(fixed)
    families = {
        topic: family
        for topic in reader.topic_names() - fixed
        if (family := family_of(topology, topic)) is not None
    }
    members = {topic for topic, family in families.items() if family.name in stage.family_sinks}
    return frozenset(fixed | members)


def _shared(topology: Topology) -> frozenset[str]:
    """Return the topics into which others than stages write: mailboxes, and what edges write."""
    mailboxes = {stage.source for stage in topology.stages}
    return frozenset(mailboxes.union(*(edge.writes for edge in topology.edges)))


def _is_queue(topology: Topology, topic: str) -> bool:
    """Whether a topic is a worker queue's, to which anyone may produce."""
    declared = family_of(topology, topic)
    return declared is not None and declared.role is TopicRole.QUEUE


def _topic_of(topology: Topology, role: TopicRole) -> str:
    return next(topic.name for topic in topology.topics if topic.role is role)


def _choose_stages(stages: Mapping[str, BoundStage], scope: Scope) -> list[str]:
    if scope.stage is None:
        return list(stages)
    if scope.stage not in stages:
        raise ConfigError(f"stage is {scope.stage!r}, expected one of {', '.join(stages)}")
    return [scope.stage]


def _choose_partitions(
    stages: Mapping[str, BoundStage], names: list[str], scope: Scope
) -> dict[str, frozenset[int]]:
    """Return the partitions to judge, by stage."""
    wanted = scope.partition
    chosen: dict[str, frozenset[int]] = {}
    for name in names:
        known = range(stages[name].partitions)
        chosen[name] = frozenset(p for p in known if wanted in (None, p))
    if not any(chosen.values()):
        most = max(stages[name].partitions for name in names)
        raise ConfigError(f"partition is {wanted}, expected at most {most - 1}")
    return chosen


def _count_partitions(reader: LogReader, topics: set[str]) -> dict[str, int]:
    counts = {topic: reader.partitions(topic) for topic in sorted(topics)}
    missing = [f"topic {topic} does not exist" for topic, count in counts.items() if not count]
    if missing:
        remedy = "name the cluster that the stages write to, or run `harn topology apply`"
        raise TopologyError(missing, remedy=remedy)
    return counts
