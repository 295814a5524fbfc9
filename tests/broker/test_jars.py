"""Kafka's jars: only the locked ones, fetched once, and never again over the network."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from streams.edge.broker.jars import KAFKA_VERSION, Jar, class_path, locked_jars
from streams.edge.broker.progress import Step, silent
from streams.errors import BrokerError
from streams.settings import Settings

pytestmark = pytest.mark.broker

CLOSED = "http://127.0.0.1:9"  # the discard port: nobody answers


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        del format, args


@pytest.fixture(scope="session")
def original() -> Path:
    """The whole cache of this machine, completed over the network if this is its first use."""
    class_path(Settings.from_env(), silent)
    return Settings.from_env().cache_dir / f"kafka-{KAFKA_VERSION}"


@pytest.fixture
def cache(original: Path, tmp_path: Path) -> Path:
    """A whole cache of the test's own."""
    folder = tmp_path / "cache" / f"kafka-{KAFKA_VERSION}"
    folder.mkdir(parents=True)
    for jar in locked_jars():
        shutil.copy2(original / jar.file_name, folder)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """An empty Maven repository: its folder and its address."""
    folder = tmp_path / "repository"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def publish(folder: Path, jar: Jar, data: bytes) -> None:
    group, artifact, version = jar.coordinate.split(":")
    place = folder / group.replace(".", "/") / artifact / version
    place.mkdir(parents=True)
    (place / jar.file_name).write_bytes(data)


def settings_for(cache: Path, repository: str) -> Settings:
    return Settings(cache_dir=cache.parent, maven_repository=repository)


def test_a_whole_cache_is_used_without_the_network(cache: Path) -> None:
    said: list[Step] = []

    paths = class_path(settings_for(cache, CLOSED), said.append)

    assert [path.name for path in paths] == [jar.file_name for jar in locked_jars()]
    assert all(path.is_file() for path in paths)
    assert said == []


def test_an_incomplete_cache_without_a_network_names_the_jar_and_the_ways_out(cache: Path) -> None:
    jar = locked_jars()[0]
    (cache / jar.file_name).unlink()

    with pytest.raises(BrokerError, match=f"cannot fetch {jar.coordinate}") as caught:
        class_path(settings_for(cache, CLOSED), silent)

    assert caught.value.retryable
    assert "KAFKA_BOOTSTRAP_SERVERS" in (caught.value.remedy or "")


def test_a_missing_jar_is_fetched_with_progress(cache: Path, repository: tuple[Path, str]) -> None:
    jar = locked_jars()[3]
    data = (cache / jar.file_name).read_bytes()
    (cache / jar.file_name).unlink()
    publish(repository[0], jar, data)
    said: list[Step] = []

    class_path(settings_for(cache, repository[1]), said.append)

    assert (cache / jar.file_name).read_bytes() == data
    done = [step.done_bytes for step in said]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, jar.size_bytes)
    assert {step.total_bytes for step in said} == {jar.size_bytes}


def test_a_jar_that_is_not_the_published_one_is_refused_and_not_kept(
    cache: Path, repository: tuple[Path, str]
) -> None:
    jar = locked_jars()[3]
    (cache / jar.file_name).unlink()
    publish(repository[0], jar, b"x" * jar.size_bytes)

    with pytest.raises(BrokerError, match=f"checksum of {jar.coordinate} does not match") as caught:
        class_path(settings_for(cache, repository[1]), silent)

    assert jar.sha256 in str(caught.value)
    assert not caught.value.retryable
    assert not (cache / jar.file_name).exists()


def test_a_cached_jar_that_changed_is_replaced(cache: Path, repository: tuple[Path, str]) -> None:
    settings = settings_for(cache, repository[1])
    class_path(settings, silent)
    jar = locked_jars()[3]
    path = cache / jar.file_name
    data = path.read_bytes()
    publish(repository[0], jar, data)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    class_path(settings, silent)

    assert path.read_bytes() == data


def test_a_cached_jar_that_was_only_touched_is_kept(cache: Path) -> None:
    settings = settings_for(cache, CLOSED)
    class_path(settings, silent)
    path = cache / locked_jars()[3].file_name
    os.utime(path, (1, 1))

    assert path in class_path(settings, silent)


def test_a_repository_without_the_jar_is_named_as_the_reason(
    cache: Path, repository: tuple[Path, str]
) -> None:
    jar = locked_jars()[3]
    (cache / jar.file_name).unlink()

    with pytest.raises(BrokerError, match=f"{jar.coordinate}.*the repository answers 404"):
        class_path(settings_for(cache, repository[1]), silent)


def test_a_full_disk_is_told_before_anything_is_fetched(
    cache: Path, repository: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / locked_jars()[0].file_name).unlink()
    usage = shutil.disk_usage(cache)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    with pytest.raises(BrokerError, match=r"no space for Kafka's jars: .* has 1 MB free"):
        class_path(settings_for(cache, repository[1]), silent)


def test_a_cache_that_cannot_be_one_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(BrokerError, match=r"cannot keep Kafka's jars in .*Not a directory"):
        class_path(Settings(cache_dir=tmp_path / "file"), silent)


def test_two_first_starts_at_once_download_once(cache: Path, repository: tuple[Path, str]) -> None:
    jar = locked_jars()[3]
    data = (cache / jar.file_name).read_bytes()
    (cache / jar.file_name).unlink()
    publish(repository[0], jar, data)
    settings = settings_for(cache, repository[1])
    said: list[Step] = []
    threads = [Thread(target=class_path, args=(settings, said.append)) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (cache / jar.file_name).read_bytes() == data
    assert [step.done_bytes for step in said].count(0) == 1


def test_the_lock_names_kafka_and_its_log_binding_once_each() -> None:
    names = [jar.file_name for jar in locked_jars()]

    assert f"kafka_2.13-{KAFKA_VERSION}.jar" in names
    assert any(name.startswith("log4j-slf4j-impl-") for name in names)
    assert len(set(names)) == len(names)
    assert {len(jar.sha256) for jar in locked_jars()} == {64}


def test_the_port_that_stands_for_no_network_is_closed() -> None:
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", 9)) != 0
