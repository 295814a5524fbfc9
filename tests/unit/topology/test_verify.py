"""The check at start, on a cluster in memory."""

from __future__ import annotations

import pytest

from tests.support.model_admin import BROKER_DEFAULTS, ModelAdmin
from topology import TOPOLOGY
from topology.errors import TopologyError
from topology.layout import Layout
from topology.plan import ObservedTopic
from topology.provision import apply
from topology.resolve import resolve
from topology.verify import topics_of, verify_at_start, verify_topics

RESOLVED = resolve(TOPOLOGY, Layout())
INBOX = TOPOLOGY.stage("inbox")
MAILBOX = INBOX.source


def provisioned() -> ModelAdmin:
    cluster = ModelAdmin()
    apply(cluster, RESOLVED)
    return cluster


def change(cluster: ModelAdmin, name: str, partitions: int = 12, **settings: str) -> None:
    topic = cluster.topics[name]
    config = {key.replace("_", "."): value for key, value in settings.items()}
    cluster.topics[name] = ObservedTopic(
        name=name,
        partitions=partitions,
        replication_factor=topic.replication_factor,
        config={**topic.config, **config},
    )


def test_a_provisioned_cluster_is_accepted() -> None:
    verify_at_start(provisioned(), RESOLVED, TOPOLOGY.stages)


def test_every_missing_topic_is_named_with_the_remedy() -> None:
    with pytest.raises(TopologyError) as caught:
        verify_at_start(ModelAdmin(), RESOLVED, [INBOX])
    named = {problem.split()[1] for problem in caught.value.problems}
    assert named == {*topics_of(INBOX), "audit.journal", "audit.checkpoints"}
    assert all(problem.endswith("run `harn topology apply`") for problem in caught.value.problems)


@pytest.mark.parametrize("partitions", [11, 13])
def test_a_mailbox_of_another_count_is_refused_with_the_remedy(partitions: int) -> None:
    cluster = provisioned()
    change(cluster, MAILBOX, partitions)
    with pytest.raises(TopologyError) as caught:
        verify_at_start(cluster, RESOLVED, [INBOX])
    assert caught.value.problems == (
        (
            f"topic {MAILBOX} has {partitions} partitions, expected 12; "
            f"set HARN_PARTITIONS={partitions}, or use a cluster that is laid out anew"
        ),
    )


def test_an_output_that_may_grow_is_refused_with_apply_as_the_remedy() -> None:
    cluster = provisioned()
    change(cluster, "triggers.lifecycle", 4)
    with pytest.raises(TopologyError, match="expected 12; run `harn topology apply`"):
        verify_at_start(cluster, RESOLVED, [INBOX])


def test_a_mailbox_stamped_by_producers_is_refused() -> None:
    cluster = provisioned()
    change(cluster, MAILBOX, message_timestamp_type="CreateTime")
    with pytest.raises(TopologyError) as caught:
        verify_at_start(cluster, RESOLVED, [INBOX])
    assert caught.value.problems == (
        (
            f"topic {MAILBOX} has message.timestamp.type=CreateTime, expected LogAppendTime; "
            "run `harn topology apply --sync`"
        ),
    )


def test_a_changelog_that_forgets_by_age_is_refused() -> None:
    cluster = provisioned()
    change(cluster, INBOX.changelog, cleanup_policy="delete")
    with pytest.raises(TopologyError, match="=delete, expected compact"):
        verify_at_start(cluster, RESOLVED, [INBOX])


def test_settings_that_are_merely_dearer_do_not_stop_a_start() -> None:
    cluster = provisioned()
    change(cluster, MAILBOX, segment_ms="1", retention_ms="1")
    verify_at_start(cluster, RESOLVED, [INBOX])


def test_topics_of_other_stages_do_not_matter() -> None:
    cluster = provisioned()
    del cluster.topics["trigger.outbox"]
    verify_at_start(cluster, RESOLVED, [INBOX])
    with pytest.raises(TopologyError, match=r"topic trigger\.outbox is missing"):
        verify_at_start(cluster, RESOLVED, TOPOLOGY.stages)


def test_an_edge_needs_its_own_topics_only() -> None:
    cluster = ModelAdmin(topics={MAILBOX: provisioned().topics[MAILBOX]})
    verify_topics(cluster, RESOLVED, [MAILBOX])
    with pytest.raises(TopologyError, match=r"topic trigger\.invocations is missing"):
        verify_topics(cluster, RESOLVED, [MAILBOX, "trigger.invocations"])


def test_a_foreign_topic_of_a_declared_name_is_judged_by_what_it_is() -> None:
    foreign = ObservedTopic(
        name=MAILBOX, partitions=1, replication_factor=1, config=BROKER_DEFAULTS
    )
    with pytest.raises(TopologyError) as caught:
        verify_topics(ModelAdmin(topics={MAILBOX: foreign}), RESOLVED, [MAILBOX])
    assert len(caught.value.problems) == 2
