"""The application's one topology value.

Declared topics, stages, edges, and the changelogs that the stages' tables need.
"""

from __future__ import annotations

from topology.audit_topics import AUDIT_TOPICS
from topology.edges import EDGES
from topology.model import Cleanup, RetentionRule, Stage, Topic, TopicRole, Topology
from topology.stages import STAGES
from topology.topics import POOL_TOPICS, TRIGGER_TOPICS, TURN_TOPICS, WORKER_TOPICS

_DECLARED = (*TRIGGER_TOPICS, *WORKER_TOPICS, *POOL_TOPICS, *TURN_TOPICS, *AUDIT_TOPICS)


def changelog_of(stage: Stage, declared: tuple[Topic, ...]) -> Topic:
    """Declare the changelog of a stage's table: as many partitions as the stage's source."""
    source = next(topic for topic in declared if topic.name == stage.source)
    return Topic(
        name=stage.changelog,
        role=TopicRole.CHANGELOG,
        partitions=source.partitions,
        cleanup=Cleanup.COMPACT,
        retention=RetentionRule.FOREVER,
        key="row key",
        co_partitioned_with=stage.source,
        doc=f"Rows of the table {stage.table.name}.",
    )


TOPOLOGY = Topology(
    topics=(*_DECLARED, *(changelog_of(stage, _DECLARED) for stage in STAGES)),
    stages=STAGES,
    edges=EDGES,
)
