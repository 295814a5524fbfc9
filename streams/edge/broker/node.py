"""Start, find and stop the embedded broker of a state directory: one at most, whoever asks.

The broker is left running when its starter ends.  Whoever starts or stops holds a lock; a running
one is recognised by its command line, so a lost or stale memory cannot lead to a second one.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from streams.edge.broker import config, jars, java, ports, process
from streams.edge.broker.archive import class_archive
from streams.edge.broker.fencing import fence_former_life
from streams.edge.broker.files import BrokerFiles, Memory
from streams.edge.broker.progress import Progress, Step, silent
from streams.edge.broker.ready import await_ready, last_words, tail
from streams.errors import BrokerError
from streams.settings import Settings

__all__ = ["BrokerHandle", "BrokerStatus", "broker_status", "ensure_broker", "stop_broker"]

_LOCK_WAIT_S = 180.0
_LOCK_POLL_S = 0.1
_FORMAT_S = 60.0
# Enough for the logs and a first few minutes of records.
_FREE_BYTES_MIN = 200_000_000


@dataclass(frozen=True, slots=True)
class BrokerHandle:
    """A broker that answers.  Only an embedded one has a process, a log and a directory here."""

    bootstrap: str
    kind: Literal["embedded", "testcontainers", "external"]
    pid: int | None = None
    log_path: Path | None = None
    state_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """What is known about the embedded broker of `state_dir`, running or not.

    `bootstrap` of one that does not run is where it was; None means it never ran.
    """

    state_dir: Path
    running: bool
    bootstrap: str | None
    pid: int | None
    kafka: str
    java: int | None
    uptime_s: float | None
    memory_bytes: int | None
    disk_bytes: int
    log_path: Path


def ensure_broker(
    settings: Settings,
    progress: Progress = silent,
    *,
    port: int | None = None,
    find_java: java.FindJava = java.find_java,
) -> BrokerHandle:
    """Return a broker that answers: the named cluster, or our own, started when it is not running.

    `port` demands a port (0 to 65535 exclusive); else the broker keeps the one that it had.
    Raises BrokerError when there cannot be one, with the reason and what to do.
    """
    if settings.bootstrap is not None:
        return BrokerHandle(settings.bootstrap, "external")
    files = BrokerFiles.of(settings.state_dir)
    with _naming(files.root):
        files.create()
        with _alone(files, progress):
            memory = _found(settings, files, progress, port)
            if memory is None:
                memory = _start(settings, files, progress, port, find_java)
    return BrokerHandle(memory.bootstrap, "embedded", memory.pid, files.log, settings.state_dir)


def stop_broker(state_dir: Path) -> bool:
    """Stop the embedded broker of `state_dir`; return whether one was running."""
    files = BrokerFiles.of(state_dir)
    if not files.root.is_dir():
        return False
    with _naming(files.root), _alone(files, silent):
        running = process.find(files)
        if running is None:
            return False
        process.end(running)
        return True


def broker_status(state_dir: Path) -> BrokerStatus:
    """Return what is known about the embedded broker of `state_dir`, running or not.

    Raises: BrokerError when the folder may not be looked into, or is none.
    """
    files = BrokerFiles.of(state_dir)
    with _naming(files.root):
        memory = files.recall()
        running = process.find(files)
    uptime_s = memory_bytes = None
    if running is not None:
        with running.oneshot():
            uptime_s = max(0.0, time.time() - running.create_time())
            memory_bytes = running.memory_info().rss
    return BrokerStatus(
        state_dir=state_dir,
        running=running is not None,
        bootstrap=None if memory is None else memory.bootstrap,
        pid=None if running is None else running.pid,
        kafka=jars.KAFKA_VERSION if memory is None else memory.kafka,
        java=None if memory is None else memory.java,
        uptime_s=uptime_s,
        memory_bytes=memory_bytes,
        disk_bytes=_disk_bytes(files.data),
        log_path=files.log,
    )


def _start(
    settings: Settings,
    files: BrokerFiles,
    progress: Progress,
    port: int | None,
    find_java: java.FindJava,
) -> Memory:
    """Write the configuration, format the directory the first time, and launch Kafka."""
    _check_space(files.root)
    runtime = find_java(settings)
    class_path = jars.class_path(settings, progress)
    archive = class_archive(runtime, class_path, progress)
    files.log4j.write_text(config.LOG4J_PROPERTIES, "ascii")
    files.console.write_bytes(b"")
    fencing = _launch(runtime, files.fencing_log, files.log4j, class_path, archive)
    fence_former_life(fencing, files, progress)
    broker_port, controller_port = _choose_ports(files, port, progress)
    files.properties.write_text(
        config.server_properties(files.data, broker_port, controller_port), "ascii"
    )
    launch = _launch(runtime, files.log, files.log4j, class_path, archive)
    if not (files.data / "meta.properties").is_file():
        progress(Step("Preparing Kafka's directory"))
        _format(launch, files)
    progress(Step(f"Starting Kafka {jars.KAFKA_VERSION}"))
    started = process.spawn([*launch, process.MAIN_CLASS, files.properties], files.console)
    memory = Memory(
        kafka=jars.KAFKA_VERSION,
        java=runtime.major,
        port=broker_port,
        controller_port=controller_port,
        pid=started.pid,
        process_started_s=started.create_time(),
    )
    files.remember(memory)
    if await_ready(settings.with_bootstrap(memory.bootstrap), started, files, progress):
        return memory
    raise BrokerError(
        f"the embedded Kafka ended while it was starting; its last words:\n{last_words(files)}",
        retryable=False,
        remedy=f"see {files.log}",
    )


def _launch(
    runtime: java.Java, log: Path, log4j: Path, class_path: Sequence[Path], archive: Path | None
) -> list[str]:
    options = config.jvm_options(log, log4j, runtime.major, archive)
    return [str(runtime.executable), *options, "-cp", ":".join(str(jar) for jar in class_path)]


def _found(
    settings: Settings, files: BrokerFiles, progress: Progress, port: int | None
) -> Memory | None:
    """Return the memory of a running broker once it answers; None when there is none."""
    running = process.find(files)
    if running is None:
        return None
    memory = _adopted(files, running)
    if port is not None and port != memory.port:
        raise BrokerError(
            f"the embedded Kafka of {files.root.parent} already runs on port {memory.port}, "
            f"expected {port}",
            retryable=False,
            remedy="stop it first: `harn broker stop`",
        )
    # One that was killed a moment ago can still be seen ending.
    answers = await_ready(settings.with_bootstrap(memory.bootstrap), running, files, progress)
    return memory if answers else None


def _adopted(files: BrokerFiles, running: psutil.Process) -> Memory:
    """Return the memory of a running broker, written anew when its starter could not."""
    memory = files.recall()
    if memory is None or memory.pid != running.pid:
        broker_port, controller_port = config.ports_in(files.properties.read_text("ascii"))
        memory = Memory(
            kafka=jars.KAFKA_VERSION,
            java=java.JAVA_MIN if memory is None else memory.java,
            port=broker_port,
            controller_port=controller_port,
            pid=running.pid,
            process_started_s=running.create_time(),
        )
        files.remember(memory)
    return memory


def _choose_ports(files: BrokerFiles, port: int | None, progress: Progress) -> list[int]:
    """Return the broker's and the controller's port: those demanded or had, else free ones."""
    memory = files.recall()
    if port is not None:
        if not ports.is_free(port):
            holder = process.holder_of(port)
            raise BrokerError(
                f"port {port} on {ports.LOOPBACK} is taken"
                f"{f' by {holder}' if holder else ''}, expected it to be free",
                retryable=False,
                remedy="choose another --port, or leave it out to get a free one",
            )
        return [port, *ports.pick_ports(files.root, 1, besides=[port])]
    if memory is None:
        return ports.pick_ports(files.root, 2)
    if all(ports.is_free(each) for each in memory.ports):
        return memory.ports
    progress(Step(f"Port {memory.port} or {memory.controller_port} is taken: using others"))
    return ports.pick_ports(files.root, 2, besides=memory.ports)


def _format(launch: list[str], files: BrokerFiles) -> None:
    """Give the directory its cluster id; what an interrupted first start left does no harm."""
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [
        *launch,
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
        f"--cluster-id={cluster_id}",  # in one word: an id may begin with a hyphen
        "--config",
        str(files.properties),
    ]
    try:
        done = subprocess.run(  # noqa: S603 - the arguments are ours
            command, capture_output=True, text=True, check=False, timeout=_FORMAT_S
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerError(
            f"preparing {files.data} for Kafka took more than {_FORMAT_S:.0f} s", retryable=True
        ) from error
    if done.returncode != 0:
        raise BrokerError(
            f"Kafka could not prepare {files.data}:\n{tail(done.stdout + done.stderr)}",
            retryable=False,
        )


def _check_space(root: Path) -> None:
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < _FREE_BYTES_MIN:
        raise BrokerError(
            f"no space for the embedded Kafka: {root} has {free_bytes // 1_000_000} MB free, "
            f"expected {_FREE_BYTES_MIN // 1_000_000} MB",
            retryable=False,
            remedy="free some space, or choose a --state-dir on another disk",
        )


@contextmanager
def _naming(root: Path) -> Iterator[None]:
    """Say which directory it was that the system refused."""
    try:
        yield
    except OSError as error:
        raise BrokerError(
            f"cannot use {root} for the embedded Kafka: {error.strerror or error}",
            retryable=False,
            remedy="make it writable or free some space, or choose another --state-dir",
        ) from error


@contextmanager
def _alone(files: BrokerFiles, progress: Progress) -> Iterator[None]:
    """Hold the state directory's start lock; the system drops it when the holder ends."""
    with files.lock.open("w") as lock:
        deadline_s = time.monotonic() + _LOCK_WAIT_S
        waiting = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    progress(Step("Another command is starting or stopping this broker: waiting"))
                    waiting = True
                if time.monotonic() > deadline_s:
                    raise BrokerError(
                        f"another command holds {files.lock} for more than {_LOCK_WAIT_S:.0f} s",
                        retryable=True,
                        remedy="look for a `harn` command that hangs, and end it",
                    ) from None
                time.sleep(_LOCK_POLL_S)
        yield


def _disk_bytes(folder: Path) -> int:
    """Bytes on disk; Kafka's index files are mostly holes, so sizes would say too much."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # a segment was deleted meanwhile
    return total
