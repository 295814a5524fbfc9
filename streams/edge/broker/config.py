"""What the embedded Kafka is told: its properties, its log files and its JVM.

It is one node, on the loopback address only, sized for a laptop: small heap, few internal
partitions, bounded logs.  What was acknowledged survives the end of the process, however it ends,
since the operating system holds it by then; one node does not survive the end of its disk.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from streams.edge.broker.ports import LOOPBACK

__all__ = [
    "LOG4J_PROPERTIES",
    "SAYING_WHAT_IS_DONE",
    "controller_properties",
    "jvm_options",
    "machine_options",
    "node_properties",
    "ports_in",
    "server_properties",
]

_NODE_ID = 1
_ASCII_END = 128
# Measured on two cores under 100,000 records/s in transactions, against the JVM's defaults:
# the first-tier compiler alone is as fast after a minute and three times as fast before, and the
# serial collector needs a third less CPU a record, 50 MB less memory and has no longer tail.
_SMALL_JVM = ("-Xms64m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# From here on Java warns about how Kafka's compression and caches reach into memory.
_JAVA_WITH_WARNINGS = 24

_PROPERTIES: dict[str, str | int] = {
    "process.roles": "broker,controller",
    "node.id": _NODE_ID,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node: one replica of everything, and few partitions of what it keeps for itself.
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "num.partitions": 4,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # Topics are declared and provisioned; a typing error must not make one.
    "auto.create.topics.enable": "false",
    # Nobody waits for members that may or may not come; tests want shorter sessions than 6 s.
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    # A stopped owner's transaction holds its readers back until the broker aborts it: look often.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    # A transaction's first append to a partition would ask the coordinator over a connection of the
    # broker to itself, some 7 ms a transaction: ADR 20 says why our owners do not need that.
    "transaction.partition.verification.enable": "false",
    # A laptop may be away for weeks; its groups should still know where they were.
    "offsets.retention.minutes": 60 * 24 * 30,
    # Small segments, so that retention and compaction have something to work on, with indexes
    # that fit them (the default maps 20 MB for every partition).
    "log.segment.bytes": 64 * 1024 * 1024,
    "log.index.size.max.bytes": 512 * 1024,
    "log.retention.check.interval.ms": 60_000,
    "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    "metadata.log.segment.bytes": 16 * 1024 * 1024,
    "metadata.max.retention.bytes": 64 * 1024 * 1024,
    # An idle broker writes nothing.
    "metadata.max.idle.interval.ms": 0,
    "broker.session.timeout.ms": 4_000,
    "broker.heartbeat.interval.ms": 1_000,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    "num.recovery.threads.per.data.dir": 2,
    "log.cleaner.threads": 1,
}

# One file, at most 40 MB with its three predecessors.
LOG4J_PROPERTIES = """\
# Kafka ends it itself, last: the hook would lose what is said while stopping.
shutdownHook = disable
status = warn
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:harn.broker.log}
appender.file.filePattern = ${sys:harn.broker.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
# The whole configuration, several hundred lines at every start.
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
# One line for every snapshot of every partition's producers.
logger.producers.name = org.apache.kafka.storage.internals.log
logger.producers.level = warn
# Only the controller that settles a kill is asked for more.
logger.controller.name = org.apache.kafka.controller.QuorumController
logger.controller.level = ${sys:harn.broker.controller:-info}
"""

SAYING_WHAT_IS_DONE = "-Dharn.broker.controller=debug"
"""Option of the JVM of a controller that is to log each event whose records are committed."""


def node_properties(
    data: Path | PurePosixPath, listen: str, port: int, controller_port: int
) -> dict[str, str]:
    """Return Kafka's configuration of a node with its records in `data`, reached on the loopback.

    `listen` is the host part it listens on: the loopback address, or nothing for any inside a
    container.
    """
    place = {
        "log.dirs": str(data),
        "listeners": f"PLAINTEXT://{listen}:{port},CONTROLLER://{listen}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.quorum.voters": f"{_NODE_ID}@{LOOPBACK}:{controller_port}",
    }
    return {name: str(value) for name, value in _PROPERTIES.items()} | place


def server_properties(data: Path, port: int, controller_port: int) -> str:
    """Return the text of server.properties for a node of this machine."""
    return _text(node_properties(data, LOOPBACK, port, controller_port))


def controller_properties(data: Path, port: int) -> str:
    """Return the text of the properties of the node's controller alone, with a short session."""
    rows = node_properties(data, LOOPBACK, port, port) | {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{LOOPBACK}:{port}",
        "broker.session.timeout.ms": "200",
        "broker.heartbeat.interval.ms": "100",
    }
    for name in ("advertised.listeners", "inter.broker.listener.name"):
        del rows[name]
    return _text(rows)


def _text(rows: dict[str, str]) -> str:
    return "".join(f"{name}={_escaped(value)}\n" for name, value in rows.items())


def machine_options(java_major: int) -> list[str]:
    """Return what makes the JVM a small and quiet one; its archive of classes asks for the same."""
    if java_major < _JAVA_WITH_WARNINGS:
        return [*_SMALL_JVM]
    return [
        *_SMALL_JVM,
        "--enable-native-access=ALL-UNNAMED",
        "--sun-misc-unsafe-memory-access=allow",
    ]


def jvm_options(log: Path, log4j: Path, java_major: int, archive: Path | None) -> list[str]:
    """Return the options of the broker's JVM, which logs to `log` as `log4j` says.

    Args:  archive: of classes, see `streams.edge.broker.archive`.
    """
    return [
        *machine_options(java_major),
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dharn.broker.log={log}",
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        *([] if archive is None else [f"-XX:SharedArchiveFile={archive}"]),
    ]


def _escaped(value: str) -> str:
    """Write a value as Java's property files want it: Latin letters only, backslash escapes."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if code < _ASCII_END else f"\\u{code:04x}" for code in codes)


def ports_in(properties: str) -> list[int]:
    """Return the broker's and the controller's port from the text of server.properties."""
    (listeners,) = re.findall(r"^listeners=(.*)$", properties, re.MULTILINE)
    return [int(address.rpartition(":")[2]) for address in listeners.split(",")]
