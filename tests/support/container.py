"""The same Kafka with the same properties in a container, where a Docker engine answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from confluent_kafka import KafkaException
from testcontainers.core.container import DockerContainer

from streams.edge.broker.config import node_properties
from streams.edge.broker.jars import KAFKA_VERSION
from streams.edge.broker.ports import LOOPBACK, pick_ports
from streams.kafka import make_admin
from streams.settings import Settings

_CONTROLLER_PORT = 9093
_READY_S = 60.0


@contextmanager
def broker_container() -> Iterator[str]:
    """Run Kafka in a container and yield its bootstrap address once it answers."""
    # The port is the same inside and outside, since the broker tells clients where it is.
    (port,) = pick_ports(Path.cwd(), 1)
    container = DockerContainer(f"apache/kafka:{KAFKA_VERSION}").with_bind_ports(port, port)
    data = PurePosixPath("/var/lib/kafka/data")
    for name, value in node_properties(data, "", port, _CONTROLLER_PORT).items():
        container = container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    with container:
        bootstrap = f"{LOOPBACK}:{port}"
        _await_answer(bootstrap)
        yield bootstrap


def _await_answer(bootstrap: str) -> None:
    admin = make_admin(Settings(bootstrap=bootstrap))
    deadline_s = time.monotonic() + _READY_S
    while True:
        try:
            if admin.list_topics(timeout=1.0).brokers:
                return
        except KafkaException:
            if time.monotonic() > deadline_s:
                raise
