"""A real schema registry for tests: Apicurio, from Maven Central, on the Java that Kafka runs on.

Its archive (109 MB) is fetched once into the cache that the broker's jars share, and proven by its
SHA-256; nothing else is accepted.  It keeps schemas in memory: a restart forgets them.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import urlopen

from jgo.maven import MavenContext

from streams.edge.broker.java import find_java
from streams.edge.broker.ports import LOOPBACK, pick_ports
from streams.settings import Settings

VERSION = "3.0.9"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_READY_S = 90.0  # six seconds when the machine has nothing else to do
_POLL_S = 0.1
_STOP_S = 20.0


class Apicurio:
    """A running registry: `url` speaks Confluent's protocol."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process = process
        self._log = log
        self.url = f"http://{LOOPBACK}:{port}/apis/ccompat/v7"

    def await_ready(self) -> None:
        """Return once it answers; fail with its output when it ends or takes too long."""
        deadline_s = time.monotonic() + _READY_S
        while time.monotonic() < deadline_s:
            try:
                with urlopen(f"{self.url}/subjects", timeout=_READY_S) as answer:
                    assert answer.status == 200, f"Apicurio answers {answer.status}"
                return
            except URLError:
                if self._ended_within(_POLL_S):
                    raise AssertionError(
                        f"Apicurio ended while starting:\n{self._tail()}"
                    ) from None
        raise AssertionError(f"Apicurio is not ready after {_READY_S:.0f} s:\n{self._tail()}")

    def stop(self) -> None:
        """End it, and wait until its port is free again."""
        self._process.terminate()
        if not self._ended_within(_STOP_S):
            self._process.kill()
            self._process.wait(_STOP_S)

    def _ended_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8").splitlines()[-30:])


@contextmanager
def running_registry(settings: Settings, folder: Path) -> Iterator[Apicurio]:
    """Run a registry of the test's own, with its temporary files in `folder`."""
    home = _installed(settings)
    (port,) = pick_ports(folder, 1)
    arguments = [
        find_java(settings).executable,
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        f"-Djava.io.tmpdir={folder}",
        f"-Dquarkus.http.host={LOOPBACK}",
        f"-Dquarkus.http.port={port}",
        "-jar",
        home / f"apicurio-registry-app-{VERSION}-runner.jar",
    ]
    log = folder / "apicurio.log"
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, cwd=folder, stdout=output, stderr=output)
    registry = Apicurio(process, port, log)
    try:
        registry.await_ready()
        yield registry
    finally:
        registry.stop()


def _installed(settings: Settings) -> Path:
    """The unpacked archive in the cache; fetched, proven and unpacked when it is not there."""
    cache = settings.cache_dir.absolute()
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"apicurio-registry-{VERSION}"
    with (cache / ".apicurio.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once fetch it once
        if not home.is_dir():
            with TemporaryDirectory(prefix=".apicurio-", dir=cache) as staging:
                archive = _fetched(settings, Path(staging))
                unpacked = Path(staging) / "unpacked"
                with tarfile.open(archive) as tar:
                    tar.extractall(unpacked, filter="data")
                unpacked.rename(home)  # whole or not at all
    return home


def _fetched(settings: Settings, staging: Path) -> Path:
    sys.stderr.write(f"\nfetching Apicurio Registry {VERSION} (109 MB, once) ...\n")
    logging.getLogger("jgo").setLevel(logging.ERROR)
    mirror = settings.maven_repository
    context = MavenContext(
        repo_cache=staging,
        remote_repos=None if mirror is None else {"mirror": mirror},
        timeout=60,
    )
    component = context.project("io.apicurio", "apicurio-registry-app").at_version(VERSION)
    archive = component.artifact("all", "tar.gz").resolve()
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    assert found == SHA256, f"{archive.name}: SHA-256 {found}, expected {SHA256}"
    return archive
