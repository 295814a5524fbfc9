"""Provisioning on a cluster in memory that obeys and refuses as Kafka does."""

# confluent-kafka documents these names in `confluent_kafka.admin` without listing them there.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.model_admin import BROKER_DEFAULTS, ModelAdmin
from topology import TOPOLOGY
from topology.errors import TopologyError
from topology.layout import Layout
from topology.plan import ChangeKind, ObservedTopic
from topology.provision import apply, plan
from topology.resolve import resolve

LAYOUT = Layout()
RESOLVED = resolve(TOPOLOGY, LAYOUT)
BY_NAME = {topic.name: topic for topic in RESOLVED}
MAILBOX = "trigger.dispatches"
OUTPUT = "trigger.outbox"


def observed(name: str, **changes: Any) -> ObservedTopic:
    topic = BY_NAME[name]
    right = ObservedTopic(
        name=name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config={**BROKER_DEFAULTS, **topic.config},
    )
    return replace(right, **changes)


def provisioned(**changed: ObservedTopic) -> ModelAdmin:
    """A cluster as it should be, but for the topics given."""
    topics = {name: observed(name) for name in BY_NAME}
    topics.update({topic.name: topic for topic in changed.values()})
    return ModelAdmin(topics=topics)


@st.composite
def clusters(draw: st.DrawFn, *, mendable: bool) -> ModelAdmin:
    """Any mixture of missing, smaller, larger, drifted and foreign topics, on 1 to 4 brokers.

    A mendable one has nothing that is refused.
    """
    foreign = ObservedTopic(
        name="somebody.elses", partitions=3, replication_factor=1, config=BROKER_DEFAULTS
    )
    topics = {foreign.name: foreign}
    for name in draw(st.sets(st.sampled_from(sorted(BY_NAME)))):
        right = BY_NAME[name]
        counts = [right.partitions]
        if right.may_grow or not mendable:
            counts.append(1)
        if not mendable:
            counts.append(40)
        drifted = draw(st.dictionaries(st.sampled_from(sorted(right.config)), st.just("42")))
        topics[name] = observed(
            name,
            partitions=draw(st.sampled_from(counts)),
            replication_factor=draw(st.sampled_from([3, 1])),
            config={**BROKER_DEFAULTS, **right.config, **drifted},
        )
    return ModelAdmin(brokers=draw(st.sampled_from([3, 4] if mendable else [1, 3])), topics=topics)


def sizes(topics: Mapping[str, ObservedTopic]) -> dict[str, int]:
    return {name: topic.partitions for name, topic in topics.items()}


@given(cluster=clusters(mendable=True), sync=st.booleans())
def test_a_second_apply_changes_nothing(cluster: ModelAdmin, sync: bool) -> None:
    apply(cluster, RESOLVED, sync=sync)
    done, remaining = cluster.changes, plan(cluster, RESOLVED)
    assert not remaining.pending(sync=sync)
    assert {change.kind for change in remaining.changes} <= {ChangeKind.DRIFT}
    assert not (sync and any(change.settings for change in remaining.changes))
    apply(cluster, RESOLVED, sync=sync)
    assert cluster.changes == done


@given(cluster=clusters(mendable=True), sync=st.booleans())
def test_apply_never_shrinks_nor_touches_foreign_topics(cluster: ModelAdmin, sync: bool) -> None:
    before = dict(cluster.topics)
    apply(cluster, RESOLVED, sync=sync)
    after = sizes(cluster.topics)
    assert all(after[name] >= count for name, count in sizes(before).items())
    assert cluster.topics["somebody.elses"] == before["somebody.elses"]


@given(cluster=clusters(mendable=True))
def test_without_sync_no_setting_of_an_existing_topic_changes(cluster: ModelAdmin) -> None:
    before = dict(cluster.topics)
    apply(cluster, RESOLVED)
    assert {name: cluster.topics[name].config for name in before} == {
        name: topic.config for name, topic in before.items()
    }


@given(cluster=clusters(mendable=False), sync=st.booleans())
def test_a_plan_with_one_refusal_changes_nothing_at_all(cluster: ModelAdmin, sync: bool) -> None:
    assume(plan(cluster, RESOLVED).refused)
    before = dict(cluster.topics)
    with pytest.raises(TopologyError):
        apply(cluster, RESOLVED, sync=sync)
    assert cluster.topics == before


def test_an_empty_cluster_gets_every_fixed_topic_as_declared() -> None:
    cluster = ModelAdmin()
    carried_out = apply(cluster, RESOLVED)
    assert {change.topic.name for change in carried_out.of(ChangeKind.CREATE)} == set(BY_NAME)
    assert cluster.topics == {name: observed(name) for name in BY_NAME}


def test_an_output_grows_to_its_declared_count() -> None:
    cluster = provisioned(outbox=observed(OUTPUT, partitions=4))
    apply(cluster, RESOLVED)
    assert cluster.topics[OUTPUT].partitions == 12


@pytest.mark.parametrize(
    "name", [MAILBOX, "inbox-inbox-changelog", "trigger.inbox.claims", "agent_turns"]
)
def test_growing_what_keeps_state_by_partition_is_refused_with_the_remedy(name: str) -> None:
    cluster = provisioned(small=observed(name, partitions=4))
    with pytest.raises(TopologyError) as caught:
        apply(cluster, RESOLVED)
    [problem] = caught.value.problems
    variable = "AGENT_TURNS_PARTITIONS" if name == "agent_turns" else "HARN_PARTITIONS"
    assert f"{name}: has 4 partitions, expected" in problem
    assert f"set {variable}=4" in problem
    assert ("harn topology grow-turns" in problem) == (name == "agent_turns")
    assert cluster.changes == 0


@pytest.mark.parametrize("name", [MAILBOX, OUTPUT, "audit.journal"])
def test_shrinking_is_refused(name: str) -> None:
    cluster = provisioned(wide=observed(name, partitions=13))
    with pytest.raises(TopologyError, match="Kafka never takes partitions away; set HARN_PARTITI"):
        apply(cluster, RESOLVED)
    assert cluster.topics[name].partitions == 13


def test_a_fixed_count_that_is_off_is_told_without_a_setting_to_change() -> None:
    cluster = provisioned(wide=observed("triggers.registry", partitions=2))
    with pytest.raises(TopologyError, match="with Kafka's own tools"):
        apply(cluster, RESOLVED)


def test_too_few_brokers_are_told_before_anything_is_created() -> None:
    cluster = ModelAdmin(brokers=1)
    with pytest.raises(TopologyError, match="set HARN_REPLICATION_FACTOR=1, or add brokers"):
        apply(cluster, RESOLVED)
    assert cluster.topics == {}


def test_drift_is_shown_and_altered_only_with_sync() -> None:
    config = {**BROKER_DEFAULTS, **BY_NAME[MAILBOX].config, "retention.ms": "1"}
    cluster = provisioned(short=observed(MAILBOX, config=config))
    [change] = plan(cluster, RESOLVED).changes
    assert str(change) == f"{MAILBOX}: retention.ms=1 expected 604800000"
    apply(cluster, RESOLVED)
    assert cluster.topics[MAILBOX].config["retention.ms"] == "1"
    apply(cluster, RESOLVED, sync=True)
    assert cluster.topics[MAILBOX] == observed(MAILBOX)


def test_sync_leaves_settings_that_are_not_ours() -> None:
    config = {**BROKER_DEFAULTS, **BY_NAME[MAILBOX].config, "compression.type": "zstd"}
    cluster = provisioned(packed=observed(MAILBOX, config=config | {"segment.ms": "1"}))
    apply(cluster, RESOLVED, sync=True)
    assert cluster.topics[MAILBOX].config == config


def test_a_replica_count_that_is_off_is_shown_and_changed_by_nobody() -> None:
    cluster = provisioned(thin=observed(OUTPUT, replication_factor=1))
    planned = plan(cluster, RESOLVED)
    [change] = planned.changes
    assert "has 1 replicas, expected 3" in change.detail
    assert "kafka-reassign-partitions" in str(change)
    assert not planned.pending(sync=True)
    apply(cluster, RESOLVED, sync=True)
    assert cluster.changes == 0


def test_a_legacy_topic_of_another_application_is_taken_as_it_is() -> None:
    odd = observed("trigger.inbox", partitions=3, config=BROKER_DEFAULTS)
    assert plan(provisioned(odd=odd), RESOLVED).changes == ()


def test_a_topic_that_another_apply_creates_meanwhile_is_no_error() -> None:
    class Raced(ModelAdmin):
        def create_topics(self, new_topics: list[NewTopic], /, *, request_timeout: float) -> Any:
            super().create_topics(new_topics[::2], request_timeout=request_timeout)
            return super().create_topics(new_topics, request_timeout=request_timeout)

    cluster = Raced()
    apply(cluster, RESOLVED)
    assert cluster.topics == {name: observed(name) for name in BY_NAME}


def test_apply_returns_only_once_the_cluster_shows_the_change() -> None:
    cluster = ModelAdmin()
    cluster.lag = 4
    apply(cluster, RESOLVED)
    assert cluster.lag == 0
    assert plan(cluster, RESOLVED).changes == ()


def test_a_denied_creation_names_the_topic() -> None:
    class Denying(ModelAdmin):
        def _created(self, topic: NewTopic) -> Any:
            if topic.topic != OUTPUT:
                return super()._created(topic)
            future = super()._described("nowhere")
            assert isinstance(future.exception(), KafkaException)
            return future

    with pytest.raises(KafkaException) as caught:
        apply(Denying(), RESOLVED)
    error = caught.value.args[0]
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert f"topic {OUTPUT}" in error.str()
