"""The shipped topology with one thing wrong: topics, the layout of a cluster, and folds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from topology import TOPOLOGY
from topology.check import Bindings, Code
from topology.layout import Layout
from topology.model import (
    Cleanup,
    Edge,
    RetentionRule,
    RowType,
    Stage,
    Table,
    Topic,
    TopicRole,
    Topology,
)

ENVELOPES = "trigger.inbox.envelopes"
NEW_TOPIC = Topic(name="trigger.new", role=TopicRole.OUTPUT, key="none", doc="A new output.")
DAY_MS = 86_400_000
FOLDS: dict[str, object] = {stage.name: object() for stage in TOPOLOGY.stages}


def topics(*added: Topic, without: str | None = None) -> Topology:
    kept = tuple(topic for topic in TOPOLOGY.topics if topic.name != without)
    return replace(TOPOLOGY, topics=(*kept, *added))


def topic(name: str, /, **changes: object) -> Topology:
    changed = replace(TOPOLOGY.topic(name), **changes)
    return replace(
        TOPOLOGY, topics=tuple(changed if each.name == name else each for each in TOPOLOGY.topics)
    )


def stage(name: str, /, **changes: object) -> Topology:
    changed = replace(TOPOLOGY.stage(name), **changes)
    return replace(
        TOPOLOGY, stages=tuple(changed if each.name == name else each for each in TOPOLOGY.stages)
    )


def rows(*added: RowType) -> Topology:
    table = TOPOLOGY.stage("inbox").table
    return stage("inbox", table=replace(table, rows=(*table.rows, *added)))


def edge(**changes: object) -> Topology:
    return replace(TOPOLOGY, edges=(*TOPOLOGY.edges, replace(EDGE, **changes)))


EDGE = Edge(name="probe", writes=(ENVELOPES,), doc="An edge.")
SECOND_INBOX = Stage(
    name="second",
    version=1,
    role="second",
    source=ENVELOPES,
    sinks=(),
    table=Table(name="second", rows=()),
    quarantine="trigger.dlq",
    doc="Reads what inbox reads.",
)
SECOND_CHANGELOG = Topic(
    name="second-second-changelog",
    role=TopicRole.CHANGELOG,
    cleanup=Cleanup.COMPACT,
    retention=RetentionRule.FOREVER,
    key="row key",
    doc="Rows.",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    code: Code
    where: str
    says: str
    topology: Topology = TOPOLOGY
    layout: Layout = field(default_factory=Layout)
    bindings: Bindings | None = None


TOPIC_CASES = {
    "a topic is declared twice": Case(
        code=Code.DUPLICATE_TOPIC,
        where="trigger.outbox",
        says="declared 2 times",
        topology=topics(TOPOLOGY.topic("trigger.outbox")),
    ),
    "a name holds a character that Kafka refuses": Case(
        code=Code.ILLEGAL_NAME,
        where="trigger.new/topic",
        says="holds '/'",
        topology=topics(replace(NEW_TOPIC, name="trigger.new/topic")),
    ),
    "a name is longer than Kafka allows": Case(
        code=Code.ILLEGAL_NAME,
        where="t" * 250,
        says="has 250 characters, expected <= 249",
        topology=topics(replace(NEW_TOPIC, name="t" * 250)),
    ),
    "two names are one to Kafka": Case(
        code=Code.CLASHING_NAMES,
        where="trigger.inbox.claims",
        says="equals trigger_inbox_claims",
        topology=topics(replace(NEW_TOPIC, name="trigger_inbox_claims")),
    ),
    "a kind is declared twice in one topic": Case(
        code=Code.DUPLICATE_KIND,
        where="trigger.invocations",
        says="kind invoke is declared 2 times",
        topology=topic("trigger.invocations", kinds=(("invoke", "invoke"), ("invoke", "tick"))),
    ),
    "a mailbox declares a kind of the runtime": Case(
        code=Code.DUPLICATE_KIND,
        where=ENVELOPES,
        says="kind tick",
        topology=topic(ENVELOPES, kinds=(("tick", "tick"),)),
    ),
    "a kind names a schema without a file": Case(
        code=Code.UNKNOWN_SCHEMA,
        where="trigger.invocations",
        says="expected a file schemas/nowhere.avsc",
        topology=topic("trigger.invocations", kinds=(("invoke", "nowhere"),)),
    ),
    "a row names a schema without a file": Case(
        code=Code.UNKNOWN_SCHEMA,
        where="stage inbox table inbox",
        says="expected a file schemas/nowhere.avsc",
        topology=rows(RowType(prefix="x", schema="nowhere", doc="A row.")),
    ),
    "a topic has no partition": Case(
        code=Code.PARTITION_COUNT,
        where="fleet.workers",
        says="has 0 partitions",
        topology=topic("fleet.workers", partitions=0),
    ),
    "an output is compacted": Case(
        code=Code.COMPACTED_LOG,
        where="trigger.outbox",
        says="expected cleanup delete",
        topology=topic("trigger.outbox", cleanup=Cleanup.COMPACT, retention=RetentionRule.FOREVER),
    ),
    "the journal is compacted": Case(
        code=Code.COMPACTED_LOG,
        where="audit.journal",
        says="expected cleanup delete",
        topology=topic("audit.journal", cleanup=Cleanup.COMPACT, retention=RetentionRule.FOREVER),
    ),
    "a catalog is cut off by age": Case(
        code=Code.UNCOMPACTED_CATALOG,
        where="worker.queues",
        says="expected compact",
        topology=topic("worker.queues", cleanup=Cleanup.DELETE),
    ),
    "topics that share partition numbers have different counts": Case(
        code=Code.CO_PARTITIONING,
        where="agent.turns.claims",
        says="has 3 partitions, expected the 6 of agent_turns",
        topology=topic("agent.turns.claims", partitions=3),
    ),
    "dispatch has fewer partitions than inbox": Case(
        code=Code.CO_PARTITIONING,
        where="trigger.dispatches",
        says="has 5 partitions, expected the 12 of trigger.inbox.envelopes",
        topology=topic("trigger.dispatches", partitions=5),
    ),
    "a topic shares the numbers of an undeclared one": Case(
        code=Code.CO_PARTITIONING,
        where="agent.jobs",
        says="nowhere, which is not declared",
        topology=topic("agent.jobs", co_partitioned_with="nowhere"),
    ),
    "the journal has no place for some stage partitions": Case(
        code=Code.CO_PARTITIONING,
        where="audit.journal",
        says="has 1 partitions, expected >= 12",
        topology=topic("audit.journal", partitions=1),
    ),
    "no journal is declared": Case(
        code=Code.MISSING_JOURNAL,
        where="journal",
        says="declared topics: none",
        topology=topics(without="audit.journal"),
    ),
    "two topics are checkpoints": Case(
        code=Code.MISSING_JOURNAL,
        where="checkpoint",
        says="audit.checkpoints, audit.second",
        topology=topics(replace(TOPOLOGY.topic("audit.checkpoints"), name="audit.second")),
    ),
    "more replicas must be in sync than exist": Case(
        code=Code.REPLICATION,
        where="min_insync_replicas",
        says="is 3, expected <= replication_factor = 2",
        layout=Layout(replication_factor=2, min_insync_replicas=3),
    ),
    "outputs go before the mailbox that they are audited with": Case(
        code=Code.RETENTION_ORDER,
        where="trigger.outbox",
        says="as long as the mailboxes",
        layout=Layout(retention_output_ms=6 * DAY_MS),
    ),
    "the journal goes before the outputs that it proves": Case(
        code=Code.RETENTION_ORDER,
        where="audit.journal",
        says=f"expected >= {31 * DAY_MS} ms",
        layout=Layout(retention_output_ms=31 * DAY_MS),
    ),
    "one output is kept shorter than the others": Case(
        code=Code.RETENTION_ORDER,
        where="trigger.attempts",
        says="keeps records 3600000 ms",
        topology=topic("trigger.attempts", retention=RetentionRule.SHORT),
    ),
    "a catalog's keys have an age": Case(
        code=Code.RETENTION_ORDER,
        where="worker.queues",
        says="expected no bound",
        topology=topic("worker.queues", retention=RetentionRule.AUDIT),
    ),
    "a mailbox is shorter than the longest retry": Case(
        code=Code.RETENTION_TOO_SHORT,
        where=ENVELOPES,
        says="the longest retry (604800000 ms) and a lease (24000 ms)",
        layout=Layout(longest_retry_ms=7 * DAY_MS),
    ),
    "cancel intents go before a lease ends": Case(
        code=Code.RETENTION_TOO_SHORT,
        where="trigger.invocations.cancels",
        says="expected >= 3611000 ms",
        layout=Layout(lease_ms=3_600_000),
    ),
    "a lost heartbeat would end a membership": Case(
        code=Code.SESSION,
        where="heartbeat_interval_ms",
        says="is 2001, expected <= a third of session_timeout_ms = 6000",
        layout=Layout(heartbeat_interval_ms=2_001),
    ),
    "a lease ends while its renewal waits to be read": Case(
        code=Code.READER_WAIT,
        where="lease_ms",
        says="is 21999, expected >= 22000: twice the 11000 ms",
        layout=Layout(lease_ms=21_999),
    ),
    "a worker counts as gone while its heartbeat waits to be read": Case(
        code=Code.READER_WAIT,
        where="heartbeat_ttl_ms",
        says="is 21999",
        layout=Layout(heartbeat_ttl_ms=21_999),
    ),
    "a drain ends before a reader's wait": Case(
        code=Code.READER_WAIT,
        where="drain_ms",
        says="is 0",
        layout=Layout(drain_ms=0),
    ),
    "a long session makes readers wait longer": Case(
        code=Code.READER_WAIT,
        where="lease_ms",
        says="twice the 32000 ms",
        layout=Layout(session_timeout_ms=30_000),
    ),
    "a stage has no fold": Case(
        code=Code.UNBOUND_STAGE,
        where="stage inbox",
        says="has no fold",
        bindings={name: fold for name, fold in FOLDS.items() if name != "inbox"},
    ),
    "a fold has no stage": Case(
        code=Code.UNKNOWN_STAGE,
        where="stage pools",
        says="has a fold but is not declared",
        bindings={**FOLDS, "pools": object()},
    ),
    "a stage has two folds": Case(
        code=Code.DOUBLY_BOUND,
        where="stage inbox",
        says="has 2 folds",
        bindings=[*FOLDS.items(), ("inbox", object())],
    ),
    "two stages share a fold": Case(
        code=Code.DOUBLY_BOUND,
        where="stages inbox, registry",
        says="share one fold",
        bindings={**FOLDS, "registry": FOLDS["inbox"]},
    ),
}
