"""From declarations and a layout to the topics of one cluster: counts, replicas and settings.

Every setting that an audit or a recovery rests on is named here and so owned by this application:
a broker's own default never decides it.

Source: DESIGN "Topics", "Partitions"; law 2 (`LogAppendTime` on mailboxes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topology.layout import FOREVER_MS, Layout
from topology.model import Cleanup, PartitionRule, Topic, TopicRole, Topology

__all__ = ["ResolvedTopic", "resolve", "resolve_topic"]

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS

KAFKA_MAX_BATCH_BYTES = 1_048_588
"""Kafka's own default of `max.message.bytes`.  Clients cut their batches to fit it, so that a topic
must not take less."""

RECORD_SLACK_BYTES = 131_072
"""Room for a record's key, headers and batch frame beside its value."""

COMPACTED_SEGMENT_BYTES = 64 * 1024 * 1024
"""Only closed segments are compacted: small ones keep the part that a load reads twice short."""

DIRTY_RATIO = "0.2"
"""Compact when a fifth is stale (Kafka waits for half): loading reads every stale row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTopic:
    """One topic as a cluster should have it.

    `config` holds the settings that this application owns, as Kafka spells them.  `may_grow` says
    that partitions can be added later; otherwise keys would change their partition under state.
    `counted_by` is the environment variable that decides `partitions`, if one does.
    """

    name: str
    role: TopicRole
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
    may_grow: bool
    counted_by: str | None
    doc: str


# Topics whose readers keep nothing per partition.  A mailbox and its changelog hold state by
# partition number; a catalog would keep a key's old value where nobody looks for it any more; a
# request's key stands for an order that growing would break.
_GROWING = (TopicRole.OUTPUT, TopicRole.INTENT, TopicRole.JOURNAL, TopicRole.CHECKPOINT)

TURNS_COUNTED_BY = "AGENT_TURNS_PARTITIONS"
"""The variable that says how many partitions the topics of turns have."""

_COUNTED_BY = {
    PartitionRule.MAILBOX: "HARN_PARTITIONS",
    PartitionRule.TURNS: TURNS_COUNTED_BY,
}


def resolve(topology: Topology, layout: Layout) -> tuple[ResolvedTopic, ...]:
    """Return every fixed topic of `topology`, by declaration order.

    Families are left out: their topics come into being when a queue or a binding names them
    (`topology.family.expand`, then `resolve_topic`).
    """
    return tuple(resolve_topic(topic, layout) for topic in topology.topics if not topic.is_family)


def resolve_topic(topic: Topic, layout: Layout) -> ResolvedTopic:
    """Return one topic as a cluster laid out by `layout` should have it."""
    assert not topic.is_family, f"{topic.name} is a family: expand it first"
    return ResolvedTopic(
        name=topic.name,
        role=topic.role,
        partitions=layout.partitions_of(topic),
        replication_factor=layout.replication_factor,
        config=_config(topic, layout),
        may_grow=topic.role in _GROWING and topic.co_partitioned_with is None,
        counted_by=(
            _COUNTED_BY[topic.partitions] if isinstance(topic.partitions, PartitionRule) else None
        ),
        doc=topic.doc,
    )


def _config(topic: Topic, layout: Layout) -> dict[str, str]:
    batch_bytes = max(KAFKA_MAX_BATCH_BYTES, layout.max_record_bytes + RECORD_SLACK_BYTES)
    retention_ms = layout.retention_ms_of(topic)
    config = {
        "cleanup.policy": str(topic.cleanup),
        "max.message.bytes": str(batch_bytes),
        "message.timestamp.type": "LogAppendTime" if topic.log_append_time else "CreateTime",
        "min.insync.replicas": str(layout.min_insync_replicas),
        # A size bound would cut a mailbox before its age, and the audit with it.
        "retention.bytes": "-1",
        "retention.ms": str(retention_ms),
        # A replica that fell behind would take acknowledged records with it.
        "unclean.leader.election.enable": "false",
    }
    if topic.cleanup is Cleanup.COMPACT:
        config |= {
            # A member whose disk holds rows may be away for a mailbox's age: tombstones wait for
            # it, or a deleted row would come back.
            "delete.retention.ms": str(layout.retention_mailbox_ms),
            "min.cleanable.dirty.ratio": DIRTY_RATIO,
            "segment.bytes": str(COMPACTED_SEGMENT_BYTES),
            "segment.ms": str(_DAY_MS),
        }
    else:
        config["segment.ms"] = str(_segment_ms(retention_ms))
    return config


def _segment_ms(retention_ms: int) -> int:
    """Return how long a segment stays open, ms.

    Only closed segments go, so that a record outlives its age by up to one segment: a seventh of
    the age, a day at most, keeps outputs (8 days) from going before a mailbox's last records do.
    """
    if retention_ms == FOREVER_MS:
        return 7 * _DAY_MS
    return min(_DAY_MS, max(5 * _MINUTE_MS, retention_ms // 7))
