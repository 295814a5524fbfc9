"""Provisioning a real cluster: what is created, grown, refused and shown."""

# confluent-kafka documents these names in `confluent_kafka.admin` without listing them there.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from streams.cli.main import main
from streams.errors import BrokerError, TopologyError
from streams.kafka import make_admin, make_consumer, make_producer
from streams.provision import (
    check_topology,
    plan_topics,
    provision_topics,
    resolved_topics,
    verify_stages,
)
from streams.settings import Settings
from tests.support.broker import Kafka, PrivateBroker
from tests.support.topics import append, read_all
from tests.support.topologies import renamed_topology
from topology import Topology
from topology.cluster import observe
from topology.plan import ChangeKind, ObservedCluster, ObservedTopic

pytestmark = pytest.mark.broker

TIMEOUT_S = 60


def named(topology: Topology, ending: str) -> str:
    """The topic of a renamed topology that is called `ending` in the shipped one."""
    return next(topic.name for topic in topology.topics if topic.name.endswith(f".{ending}"))


def create(settings: Settings, name: str, partitions: int) -> None:
    """Create a topic as somebody else would."""
    admin = make_admin(settings)
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(timeout=TIMEOUT_S)
    await_shown(admin, name, lambda topic: topic.partitions == partitions)


def alter(settings: Settings, name: str, key: str, value: str) -> None:
    """Set a setting of a topic as somebody else would."""
    admin = make_admin(settings)
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(timeout=TIMEOUT_S)
    await_shown(admin, name, lambda topic: topic.config[key] == value)


def await_shown(admin: AdminClient, name: str, wanted: Callable[[ObservedTopic], bool]) -> None:
    """Wait until the broker shows what it has accepted: it answers a little before."""
    for _ in range(10 * TIMEOUT_S):
        topic = observe(admin, [name]).topics.get(name)
        if topic is not None and wanted(topic):
            return
        admin.poll(0.1)
    raise AssertionError(f"{name} is not shown as changed after {TIMEOUT_S} s")


def seen(settings: Settings, topology: Topology) -> ObservedCluster:
    return observe(make_admin(settings), [topic.name for topic in topology.topics])


def test_every_topic_is_created_as_resolved_and_a_second_apply_does_nothing(kafka: Kafka) -> None:
    topology = renamed_topology()
    resolved = resolved_topics(kafka.settings, topology)
    first = provision_topics(kafka.settings, declared=topology)
    assert tuple(change.topic for change in first.of(ChangeKind.CREATE)) == resolved

    found = seen(kafka.settings, topology)
    assert {name: topic.partitions for name, topic in found.topics.items()} == {
        topic.name: topic.partitions for topic in resolved
    }
    for topic in resolved:
        config = found.topics[topic.name].config
        assert {key: config[key] for key in topic.config} == topic.config

    assert provision_topics(kafka.settings, sync=True, declared=topology).changes == ()
    assert seen(kafka.settings, topology) == found


def test_several_may_apply_at_once(kafka: Kafka) -> None:
    topology = renamed_topology()
    with ThreadPoolExecutor(4) as pool:
        running = [
            pool.submit(provision_topics, kafka.settings, declared=topology) for _ in range(4)
        ]
        for each in running:
            each.result(timeout=TIMEOUT_S)
    assert plan_topics(kafka.settings, topology).changes == ()


def test_an_output_grows_and_keeps_its_records(kafka: Kafka) -> None:
    topology = renamed_topology()
    outbox = named(topology, "trigger.outbox")
    create(kafka.settings, outbox, partitions=1)
    append(kafka.settings, outbox, [b"kept"])
    done = provision_topics(kafka.settings, declared=topology)
    assert [change.topic.name for change in done.of(ChangeKind.GROW)] == [outbox]
    assert seen(kafka.settings, topology).topics[outbox].partitions == kafka.settings.partitions
    assert read_all(kafka.settings, outbox) == [b"kept"]


@pytest.mark.parametrize(
    "ending", ["trigger.dispatches", "inbox-inbox-changelog", "worker.queues", "agent_turns"]
)
def test_growing_what_holds_state_by_partition_is_refused_and_nothing_is_created(
    kafka: Kafka, ending: str
) -> None:
    topology = renamed_topology()
    name = next(topic.name for topic in topology.topics if topic.name.endswith(ending))
    create(kafka.settings, name, partitions=1)
    with pytest.raises(TopologyError, match=r"has 1 partitions, expected \d+: .*; set .*=1"):
        provision_topics(kafka.settings, declared=topology)
    assert set(seen(kafka.settings, topology).topics) == {name}


def test_a_wider_topic_is_refused_and_not_shrunk(kafka: Kafka) -> None:
    topology = renamed_topology()
    outbox = named(topology, "trigger.outbox")
    wide = kafka.settings.partitions + 1
    create(kafka.settings, outbox, partitions=wide)
    with pytest.raises(TopologyError, match="Kafka never takes partitions away"):
        provision_topics(kafka.settings, declared=topology)
    assert seen(kafka.settings, topology).topics[outbox].partitions == wide


def test_drift_is_shown_and_set_only_when_asked(kafka: Kafka) -> None:
    topology = renamed_topology()
    provision_topics(kafka.settings, declared=topology)
    mailbox = named(topology, "trigger.dispatches")
    alter(kafka.settings, mailbox, "retention.ms", "3600000")
    alter(kafka.settings, mailbox, "compression.type", "zstd")

    [change] = plan_topics(kafka.settings, topology).changes
    assert str(change) == f"{mailbox}: retention.ms=3600000 expected 604800000"
    provision_topics(kafka.settings, declared=topology)
    assert seen(kafka.settings, topology).topics[mailbox].config["retention.ms"] == "3600000"

    provision_topics(kafka.settings, sync=True, declared=topology)
    config = seen(kafka.settings, topology).topics[mailbox].config
    assert (config["retention.ms"], config["compression.type"]) == ("604800000", "zstd")


def test_foreign_topics_are_neither_shown_nor_touched(kafka: Kafka) -> None:
    topology = renamed_topology()
    foreign = f"{topology.stages[0].role}.foreign"
    create(kafka.settings, foreign, partitions=3)
    before = observe(make_admin(kafka.settings), [foreign])
    done = provision_topics(kafka.settings, sync=True, declared=topology)
    assert foreign not in {change.topic.name for change in done.changes}
    assert observe(make_admin(kafka.settings), [foreign]) == before


def test_more_replicas_than_brokers_are_refused_before_anything_is_created(kafka: Kafka) -> None:
    topology = renamed_topology()
    greedy = Settings.from_env(
        {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap, "HARN_REPLICATION_FACTOR": "9"}.get
    )
    with pytest.raises(TopologyError, match=r"needs 9 replicas, the cluster has \d brokers"):
        provision_topics(greedy, declared=topology)
    assert seen(kafka.settings, topology).topics == {}


def test_the_broker_stamps_what_producers_write_to_a_mailbox(kafka: Kafka) -> None:
    topology = renamed_topology()
    provision_topics(kafka.settings, declared=topology)
    mailbox = named(topology, "trigger.dispatches")
    producer = make_producer(kafka.settings)
    producer.produce(mailbox, b"old", partition=0, timestamp=1)
    assert producer.flush(30) == 0
    consumer = make_consumer(kafka.settings, group_id=None)
    consumer.assign([TopicPartition(mailbox, 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    kind, stamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert stamp_ms > 1


def test_a_provisioned_cluster_is_accepted_at_start(kafka: Kafka) -> None:
    topology = renamed_topology()
    provision_topics(kafka.settings, declared=topology)
    verify_stages(kafka.settings, topology.stages, topology)


def test_a_start_without_topics_names_each_and_the_remedy(kafka: Kafka) -> None:
    topology = renamed_topology()
    inbox = topology.stage("inbox")
    with pytest.raises(TopologyError) as caught:
        verify_stages(kafka.settings, [inbox], topology)
    named_topics = {problem.split()[1] for problem in caught.value.problems}
    assert named_topics >= {inbox.source, *inbox.sinks, inbox.quarantine, inbox.changelog}
    assert all("run `harn topology apply`" in problem for problem in caught.value.problems)


def test_a_start_on_a_mailbox_of_another_count_or_clock_is_refused(kafka: Kafka) -> None:
    topology = renamed_topology()
    inbox = topology.stage("inbox")
    wrong = kafka.settings.partitions + 2
    create(kafka.settings, inbox.source, wrong)
    with pytest.raises(TopologyError) as caught:
        verify_stages(kafka.settings, [inbox], topology)
    mine = [problem for problem in caught.value.problems if f" {inbox.source} " in problem]
    assert len(mine) == 2
    assert f"has {wrong} partitions" in mine[0]
    assert f"set HARN_PARTITIONS={wrong}" in mine[0]
    assert "message.timestamp.type=CreateTime, expected LogAppendTime" in mine[1]
    assert "harn topology apply --sync" in mine[1]


def test_an_unreachable_cluster_is_an_outage_that_names_it(free_address: str) -> None:
    settings = Settings.from_env({"KAFKA_BOOTSTRAP_SERVERS": free_address}.get)
    with pytest.raises(BrokerError, match=free_address) as caught:
        plan_topics(settings)
    assert caught.value.retryable


@pytest.fixture
def free_address(unused_tcp_port: int) -> str:
    return f"127.0.0.1:{unused_tcp_port}"


@pytest.fixture
def harn(
    private_broker: PrivateBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:
    """Run `harn topology …` on a broker of its own: exit code and what it printed."""
    state_dir: Path = private_broker.state_dir
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "HARN_PARTITIONS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str, **environment: str) -> tuple[int, str]:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main(["topology", *arguments, "--state-dir", str(state_dir)])
        printed = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), printed.out + printed.err

    return run


def test_the_commands_plan_apply_and_refuse_by_their_exit_codes(
    harn: Callable[..., tuple[int, str]],
) -> None:
    code, text = harn("plan")
    assert code == 2
    assert "create  trigger.inbox.envelopes" in text
    assert harn("apply")[0] == 0
    assert harn("plan") == (0, "the cluster is as declared: nothing to do\n")

    code, text = harn("plan", HARN_PARTITIONS="6")
    assert code == 1
    assert "set HARN_PARTITIONS=4" in text
    code, text = harn("apply", HARN_PARTITIONS="6")
    assert code == 3
    assert "trigger.dispatches: has 4 partitions, expected 6" in text
    assert harn("plan")[0] == 0

    nine_days = {"HARN_RETENTION_OUTPUT_MS": "777600000"}
    code, text = harn("plan", **nine_days)
    assert code == 2
    assert "retention.ms=691200000 expected 777600000" in text
    code, text = harn("apply", **nine_days)
    assert (code, "nothing was changed" in text) == (0, True)
    assert harn("apply", "--sync", **nine_days)[0] == 0
    assert harn("plan", **nine_days)[0] == 0


def test_settings_under_which_a_lease_could_end_unseen_are_refused_before_any_broker_starts(
    harn: Callable[..., tuple[int, str]], private_broker: PrivateBroker
) -> None:
    code, text = harn("apply", HARN_LEASE_MS="5000")
    assert code == 3
    assert "HARN_LEASE_MS: is 5000, expected >= 22000" in text
    assert not private_broker.state_dir.exists()


def test_the_shipped_folds_and_settings_fit_the_topology() -> None:
    check_topology(Settings())
    check_topology(Settings.from_env({"KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"}.get))
