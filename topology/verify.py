"""Refuse to start on a cluster whose topics are not what the stages were written for.

A partition count that is off sends records where nobody looks for them; a mailbox that producers
stamp is ordered by clocks that nobody trusts.  Both would be found out much later.

Source: DESIGN law 2, "Partitions"; STYLE smell 9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from topology import cluster
from topology.cluster import Admin
from topology.errors import TopologyError
from topology.model import Stage, TopicRole
from topology.plan import ObservedTopic, count_remedy
from topology.resolve import ResolvedTopic

__all__ = ["topics_of", "verify_at_start", "verify_topics"]

# Settings without which a fold, an audit or a recovery is wrong, not merely dearer.
_VITAL_SETTINGS = ("message.timestamp.type", "cleanup.policy")

_PROOF = (TopicRole.JOURNAL, TopicRole.CHECKPOINT)
_APPLY = "run `harn topology apply`"
_SYNC = "run `harn topology apply --sync`"


def verify_at_start(
    admin: Admin, resolved: Collection[ResolvedTopic], stages: Iterable[Stage]
) -> None:
    """Verify every topic that `stages` read or write, the journal and checkpoints included.

    Raises: TopologyError that names each topic that is missing, or has another partition count,
            timestamp type or cleanup policy, with the remedy; KafkaException when the cluster
            cannot be reached.
    """
    verify_topics(admin, resolved, {name for stage in stages for name in topics_of(stage)}, _PROOF)


def verify_topics(
    admin: Admin,
    resolved: Collection[ResolvedTopic],
    names: Collection[str],
    roles: Collection[TopicRole] = (),
) -> None:
    """Verify the topics of those names or roles, as `verify_at_start` does: for edges."""
    needed = [topic for topic in resolved if topic.name in names or topic.role in roles]
    undeclared = sorted(set(names) - {topic.name for topic in needed})
    assert not undeclared, f"not part of the topology: {', '.join(undeclared)}"
    observed = cluster.observe(admin, [topic.name for topic in needed])
    problems = [
        problem for topic in needed for problem in _unfit(topic, observed.topics.get(topic.name))
    ]
    if problems:
        raise TopologyError(problems, remedy="`harn topology plan` shows every difference")


def topics_of(stage: Stage) -> tuple[str, ...]:
    """Return the names of the topics that `stage` reads and writes, the journal's aside."""
    return (stage.source, *stage.sinks, stage.quarantine, stage.changelog)


def _unfit(topic: ResolvedTopic, found: ObservedTopic | None) -> Iterator[str]:
    if found is None:
        yield f"topic {topic.name} is missing; {_APPLY}"
        return
    if found.partitions != topic.partitions:
        grows = found.partitions < topic.partitions and topic.may_grow
        remedy = _APPLY if grows else count_remedy(topic, found.partitions)
        yield (
            f"topic {topic.name} has {found.partitions} partitions, "
            f"expected {topic.partitions}; {remedy}"
        )
    for name in _VITAL_SETTINGS:
        if found.config.get(name) != topic.config[name]:
            yield (
                f"topic {topic.name} has {name}={found.config.get(name)}, "
                f"expected {topic.config[name]}; {_SYNC}"
            )
