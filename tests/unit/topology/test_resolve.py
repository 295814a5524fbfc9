from __future__ import annotations

import pytest

from topology import TOPOLOGY
from topology.family import expand
from topology.layout import Layout
from topology.model import Cleanup, TopicRole
from topology.resolve import KAFKA_MAX_BATCH_BYTES, resolve, resolve_topic

DAY_MS = 86_400_000
LAYOUT = Layout(partitions=5, agent_turns_partitions=3)
RESOLVED = {topic.name: topic for topic in resolve(TOPOLOGY, LAYOUT)}


def test_every_fixed_topic_is_resolved_and_no_family() -> None:
    fixed = [topic.name for topic in TOPOLOGY.topics if not topic.is_family]
    assert list(RESOLVED) == fixed


@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        ("trigger.dispatches", 5),
        ("agent_turns", 3),
        ("triggers.registry", 1),
        ("registry-bindings-changelog", 1),
        ("inbox-inbox-changelog", 5),
    ],
)
def test_partition_counts_come_from_the_layout(name: str, partitions: int) -> None:
    assert RESOLVED[name].partitions == partitions


def test_the_broker_stamps_mailboxes_and_nothing_else() -> None:
    for topic in RESOLVED.values():
        stamped = topic.config["message.timestamp.type"] == "LogAppendTime"
        assert stamped == (topic.role is TopicRole.MAILBOX), topic.name


@pytest.mark.parametrize(
    ("name", "retention_ms"),
    [
        ("trigger.dispatches", 7 * DAY_MS),
        ("trigger.outbox", 8 * DAY_MS),
        ("audit.journal", 30 * DAY_MS),
        ("trigger.invocations.cancels", 3_600_000),
        ("triggers.registry", -1),
        ("dispatch-dispatches-changelog", -1),
    ],
)
def test_ages_come_from_the_layout_and_no_size_cuts_them(name: str, retention_ms: int) -> None:
    assert RESOLVED[name].config["retention.ms"] == str(retention_ms)
    assert RESOLVED[name].config["retention.bytes"] == "-1"


def test_outputs_outlive_a_mailbox_by_the_segment_that_it_may_stay_longer() -> None:
    mailbox, output = RESOLVED["trigger.dispatches"].config, RESOLVED["trigger.outbox"].config
    latest = int(mailbox["retention.ms"]) + int(mailbox["segment.ms"])
    assert latest <= int(output["retention.ms"])


def test_tombstones_outlive_a_member_that_was_away_for_a_mailboxs_age() -> None:
    config = RESOLVED["inbox-inbox-changelog"].config
    assert config["cleanup.policy"] == Cleanup.COMPACT
    assert config["delete.retention.ms"] == str(LAYOUT.retention_mailbox_ms)


@pytest.mark.parametrize(
    ("record_bytes", "batch_bytes"),
    [(1_000, KAFKA_MAX_BATCH_BYTES), (900_000, KAFKA_MAX_BATCH_BYTES), (950_000, 1_081_072)],
)
def test_a_topic_takes_the_largest_record_and_any_clients_batch(
    record_bytes: int, batch_bytes: int
) -> None:
    topic = resolve_topic(TOPOLOGY.topic("trigger.dlq"), Layout(max_record_bytes=record_bytes))
    assert topic.config["max.message.bytes"] == str(batch_bytes)


def test_replicas_and_durability_come_from_the_layout() -> None:
    layout = Layout(replication_factor=5, min_insync_replicas=4)
    for topic in resolve(TOPOLOGY, layout):
        assert topic.replication_factor == 5
        assert topic.config["min.insync.replicas"] == "4"
        assert topic.config["unclean.leader.election.enable"] == "false"


def test_only_topics_without_state_or_order_by_partition_may_grow() -> None:
    growing = {topic.role for topic in RESOLVED.values() if topic.may_grow}
    assert growing == {
        TopicRole.OUTPUT,
        TopicRole.INTENT,
        TopicRole.JOURNAL,
        TopicRole.CHECKPOINT,
    }
    assert not RESOLVED["agent.turns.claims"].may_grow


def test_a_family_is_resolved_once_it_has_a_value() -> None:
    topic = resolve_topic(expand(TOPOLOGY, "worker.{queue}.claims", "mail"), LAYOUT)
    assert (topic.name, topic.partitions, topic.counted_by) == ("worker.mail.claims", 1, None)
