"""What it takes to turn a cluster into the resolved topology: a pure comparison.

Four kinds of change.  `create` and `grow` are made by `apply`; `drift` is shown, and altered on
demand where the setting is ours; `refused` is what no command of ours does: taking partitions away,
or adding them where state or order hangs on a key's partition.  A topic that is not declared is
foreign and never looked at.

Invariants: applying a plan leaves nothing but drift; no plan lowers a partition count; nothing is
ever deleted.

Source: STYLE 2.14; DESIGN "Partitions".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from topology.model import TopicRole
from topology.resolve import TURNS_COUNTED_BY, ResolvedTopic

__all__ = ["Change", "ChangeKind", "ObservedCluster", "ObservedTopic", "Plan", "diff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTopic:
    """One topic as a cluster has it; `config` holds the effective value of each setting."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """How many brokers a cluster has, and those of its topics that were asked for."""

    brokers: int
    topics: Mapping[str, ObservedTopic]


class ChangeKind(StrEnum):
    """What is to be done about a difference, in the order in which a plan shows it."""

    REFUSED = "refused"
    CREATE = "create"
    GROW = "grow"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between a topic as it is and as it should be.

    `detail` says what is found and what was expected; `remedy` what a person can do where `apply`
    does nothing; `settings` what `apply --sync` would set.
    """

    kind: ChangeKind
    topic: ResolvedTopic
    detail: str
    remedy: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        """Return one line for a person."""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.topic.name}: {self.detail}{remedy}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Every difference, refusals first, then in declaration order."""

    changes: tuple[Change, ...]

    def of(self, kind: ChangeKind) -> tuple[Change, ...]:
        """Return the changes of one kind."""
        return tuple(change for change in self.changes if change.kind is kind)

    @property
    def refused(self) -> bool:
        """Whether something is found that no command changes: nothing at all is applied then."""
        return bool(self.of(ChangeKind.REFUSED))

    def pending(self, *, sync: bool) -> bool:
        """Return whether `apply` would change something; with `sync`, drifted settings too."""
        return any(
            change.kind in (ChangeKind.CREATE, ChangeKind.GROW) or (sync and change.settings)
            for change in self.changes
        )


def diff(resolved: Iterable[ResolvedTopic], observed: ObservedCluster) -> Plan:
    """Compare topics as they should be with a cluster.  Pure; foreign topics are ignored."""
    changes = [
        change
        for topic in resolved
        for change in _changes(topic, observed.topics.get(topic.name), observed.brokers)
    ]
    order = {kind: place for place, kind in enumerate(ChangeKind)}
    return Plan(tuple(sorted(changes, key=lambda change: order[change.kind])))


def _changes(topic: ResolvedTopic, found: ObservedTopic | None, brokers: int) -> Iterator[Change]:
    if found is None:
        yield _creation(topic, brokers)
        return
    if topic.role is TopicRole.LEGACY:
        # Another application's topic, read as it is.
        return
    if found.partitions != topic.partitions:
        yield _resize(topic, found)
    if found.replication_factor != topic.replication_factor:
        yield Change(
            kind=ChangeKind.DRIFT,
            topic=topic,
            detail=f"has {found.replication_factor} replicas, expected {topic.replication_factor}",
            remedy="move them with kafka-reassign-partitions, or set HARN_REPLICATION_FACTOR="
            f"{found.replication_factor}",
        )
    drifted = {
        name: value for name, value in topic.config.items() if found.config.get(name) != value
    }
    if drifted:
        shown = ", ".join(
            f"{name}={found.config.get(name, '(unset)')} expected {value}"
            for name, value in drifted.items()
        )
        yield Change(kind=ChangeKind.DRIFT, topic=topic, detail=shown, settings=drifted)


def _creation(topic: ResolvedTopic, brokers: int) -> Change:
    if brokers < topic.replication_factor:
        return Change(
            kind=ChangeKind.REFUSED,
            topic=topic,
            detail=f"needs {topic.replication_factor} replicas, the cluster has {brokers} brokers",
            remedy=f"set HARN_REPLICATION_FACTOR={brokers}, or add brokers",
        )
    return Change(
        kind=ChangeKind.CREATE,
        topic=topic,
        detail=f"{topic.partitions} partitions, {topic.replication_factor} replicas",
    )


def _resize(topic: ResolvedTopic, found: ObservedTopic) -> Change:
    if found.partitions < topic.partitions and topic.may_grow:
        return Change(
            kind=ChangeKind.GROW,
            topic=topic,
            detail=f"from {found.partitions} to {topic.partitions} partitions",
        )
    if found.partitions > topic.partitions:
        why = "Kafka never takes partitions away"
    else:
        why = f"a {topic.role} keeps state or order by partition, so that its count is fixed"
    return Change(
        kind=ChangeKind.REFUSED,
        topic=topic,
        detail=f"has {found.partitions} partitions, expected {topic.partitions}: {why}",
        remedy=count_remedy(topic, found.partitions),
    )


def count_remedy(topic: ResolvedTopic, partitions: int) -> str:
    """Return what to do when `topic` has `partitions`, which cannot become the expected count."""
    if topic.counted_by is not None:
        if topic.counted_by == TURNS_COUNTED_BY and partitions < topic.partitions:
            return f"set {topic.counted_by}={partitions}, or run `harn topology grow-turns`"
        return f"set {topic.counted_by}={partitions}, or use a cluster that is laid out anew"
    return (
        f"delete {topic.name} with Kafka's own tools if its records are not needed, then "
        "`harn topology apply`"
    )
