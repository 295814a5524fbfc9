"""Kafka's jars: which ones, proven to be those, in a cache that every state directory shares.

The list is locked: `kafka.lock` names each jar by its Maven coordinate with its SHA-256 and size,
so nothing is resolved at run time and nothing else can get onto the class path.  A jar enters the
cache only with the right checksum, by a rename, so a crash leaves no half of one there.  At every
start each cached jar's size and modification time are compared with what was verified; only a file
that changed is hashed again.  A whole cache is used without touching the network.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from streams.edge.broker.progress import Progress, Step
from streams.errors import BrokerError
from streams.settings import Settings

__all__ = ["KAFKA_VERSION", "Jar", "class_path", "exclusive", "locked_jars"]

KAFKA_VERSION = "4.3.1"

# Most jars are small: the time goes into round trips, not bytes.
_PARALLEL_DOWNLOADS = 8
_SPARE_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar; `coordinate` is group:artifact:version."""

    coordinate: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        """The jar's name in the cache, as Maven names it."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


@cache
def locked_jars() -> tuple[Jar, ...]:
    """Return the jars of `kafka.lock`, in class path order."""
    text = resources.files("streams.edge.broker").joinpath("kafka.lock").read_text("utf-8")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(Jar(coordinate, sha256, int(size)) for coordinate, sha256, size in rows)


def class_path(settings: Settings, progress: Progress) -> tuple[Path, ...]:
    """Return the paths of all locked jars, fetching those that are missing or damaged.

    Raises BrokerError when the cache is incomplete and cannot be completed.
    """
    folder = settings.cache_dir.absolute() / f"kafka-{KAFKA_VERSION}"
    jars = locked_jars()
    with _naming_the_folder(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / ".lock"):
            wanted = _unverified(folder, jars)
            if wanted:
                _fetch(settings, folder, wanted, progress)
                _remember(folder, jars)
    return tuple(folder / jar.file_name for jar in jars)


@contextmanager
def _naming_the_folder(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BrokerError(
            f"cannot keep Kafka's jars in {folder}: {error.strerror or error}",
            retryable=False,
            remedy="free some space there or make it writable, or set HARN_CACHE_DIR",
        ) from error


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a file of the cache alone: two first starts at once fetch and prepare once."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unverified(folder: Path, jars: tuple[Jar, ...]) -> list[Jar]:
    """Return the jars that are not there or not what the lock says; damaged ones are removed."""
    verified = _remembered(folder)
    wanted: list[Jar] = []
    changed = False
    for jar in jars:
        path = folder / jar.file_name
        if not path.is_file():
            wanted.append(jar)
        elif verified.get(jar.file_name) != _fingerprint(jar, path):
            changed = True
            if _sha256(path) != jar.sha256:
                path.unlink()
                wanted.append(jar)
    if changed and not wanted:
        _remember(folder, jars)
    return wanted


def _fingerprint(jar: Jar, path: Path) -> list[str | int]:
    found = path.stat()
    return [jar.sha256, found.st_size, found.st_mtime_ns]


def _remembered(folder: Path) -> dict[str, list[str | int]]:
    try:
        return json.loads((folder / "verified.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        # Lost or torn: every jar is hashed once more, a fifth of a second.
        return {}


def _remember(folder: Path, jars: tuple[Jar, ...]) -> None:
    verified = {jar.file_name: _fingerprint(jar, folder / jar.file_name) for jar in jars}
    draft = folder / "verified.json.new"
    draft.write_text(json.dumps(verified), "utf-8")
    draft.replace(folder / "verified.json")


def _fetch(settings: Settings, folder: Path, jars: list[Jar], progress: Progress) -> None:
    total_bytes = sum(jar.size_bytes for jar in jars)
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < total_bytes + _SPARE_BYTES:
        raise BrokerError(
            f"no space for Kafka's jars: {folder} has {free_bytes // 1_000_000} MB free, "
            f"expected {(total_bytes + _SPARE_BYTES) // 1_000_000} MB",
            retryable=False,
            remedy="free some space, or set HARN_CACHE_DIR to a folder on another disk",
        )
    # Imported here: what resolves and downloads is a tenth of a second of every command's start,
    # and is needed once.
    repository = importlib.import_module("streams.edge.broker.repository")
    progress(Step(f"Fetching Kafka {KAFKA_VERSION}", 0, total_bytes))
    done_bytes = 0
    one_at_a_time = Lock()

    def report(more_bytes: int) -> None:
        nonlocal done_bytes
        with one_at_a_time:
            done_bytes += more_bytes
            progress(Step(f"Fetching Kafka {KAFKA_VERSION}", done_bytes, total_bytes))

    with (
        TemporaryDirectory(prefix=".fetch-", dir=folder) as staging,
        ThreadPoolExecutor(_PARALLEL_DOWNLOADS, thread_name_prefix="fetch-kafka") as pool,
    ):
        fetched = [
            pool.submit(
                repository.fetch,
                settings.maven_repository,
                jar.coordinate,
                jar.sha256,
                Path(staging) / jar.file_name,
                report,
            )
            for jar in jars
        ]
        try:
            for jar, each in zip(jars, fetched, strict=True):
                each.result().replace(folder / jar.file_name)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
