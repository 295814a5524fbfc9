"""A Kafka for tests: the cluster that is named, a container where there is Docker, else our own."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import docker
from docker.errors import DockerException

from streams.edge.broker import BrokerHandle, ensure_broker, stop_broker
from streams.settings import Settings
from tests.support.container import broker_container


@dataclass(frozen=True)
class Kafka:
    """A running broker and the settings with which to reach it."""

    settings: Settings
    handle: BrokerHandle

    @property
    def bootstrap(self) -> str:
        return self.handle.bootstrap


@dataclass
class PrivateBroker:
    """An embedded broker for one test, which may stop it, kill it and start it again."""

    state_dir: Path
    handle: BrokerHandle | None = field(default=None, init=False)

    def start(self) -> Kafka:
        settings = embedded_settings(self.state_dir)
        self.handle = ensure_broker(settings)
        return Kafka(settings.with_bootstrap(self.handle.bootstrap), self.handle)

    def kill(self) -> None:
        """End it as a crash does: without a word, in the middle of whatever it does."""
        assert self.handle is not None
        assert self.handle.pid is not None
        os.kill(self.handle.pid, signal.SIGKILL)

    def stop(self) -> bool:
        return stop_broker(self.state_dir)


def embedded_settings(state_dir: Path) -> Settings:
    """Settings of a laptop: no cluster, whatever the environment names."""
    hidden = {"KAFKA_BOOTSTRAP_SERVERS", "HARN_PARTITIONS"}
    return Settings.from_env(
        lambda name: None if name in hidden else os.environ.get(name), state_dir=state_dir
    )


@contextmanager
def shared_kafka(state_dir: Path) -> Iterator[Kafka]:
    """Provide the broker of a test session and leave nothing of it running."""
    settings = Settings.from_env(state_dir=state_dir)
    if settings.bootstrap is not None:
        yield Kafka(settings, ensure_broker(settings))
    elif docker_answers():
        with broker_container() as bootstrap:
            handle = BrokerHandle(bootstrap, "testcontainers")
            yield Kafka(settings.with_bootstrap(bootstrap), handle)
    else:
        try:
            handle = ensure_broker(settings)
            yield Kafka(settings.with_bootstrap(handle.bootstrap), handle)
        finally:
            stop_broker(state_dir)


def docker_answers() -> bool:
    """Whether a Docker engine answers here."""
    local = urlsplit(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    if local.scheme == "unix":
        # Docker's client leaves its socket open when nobody answers: ask first.
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(local.path) != 0:
                return False
    try:
        client = docker.from_env(timeout=5)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except (DockerException, OSError):
        return False
    finally:
        client.close()
