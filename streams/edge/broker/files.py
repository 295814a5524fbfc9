"""Where an embedded broker keeps what it needs, inside a state directory, and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from streams.edge.broker.ports import LOOPBACK
from streams.errors import BrokerError

__all__ = ["BrokerFiles", "Memory"]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What the next command must know: the ports to keep, and which process was started.

    `process_started_s` (Unix time) tells the process from a later one with the same id.
    """

    kafka: str
    java: int
    port: int
    controller_port: int
    pid: int
    process_started_s: float

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def ports(self) -> list[int]:
        """The broker's port and its controller's."""
        return [self.port, self.controller_port]


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """The paths under `<state directory>/broker`; `root` is absolute."""

    root: Path

    @classmethod
    def of(cls, state_dir: Path) -> BrokerFiles:
        """Return the paths for `state_dir`; raise BrokerError when Kafka could not use it."""
        root = state_dir.absolute() / "broker"
        if "," in str(root):
            raise BrokerError(
                f"the state directory {state_dir} has a comma in its path, expected none: Kafka "
                "takes it for a list of directories",
                retryable=False,
                remedy="choose another --state-dir",
            )
        return cls(root)

    @property
    def data(self) -> Path:
        """Kafka's own directory: records, metadata, its node id."""
        return self.root / "data"

    @property
    def properties(self) -> Path:
        """server.properties, written anew at every start."""
        return self.root / "server.properties"

    @property
    def log4j(self) -> Path:
        """Log4j's configuration, written anew at every start."""
        return self.root / "log4j2.properties"

    @property
    def log(self) -> Path:
        """The broker's log."""
        return self.root / "logs" / "server.log"

    @property
    def console(self) -> Path:
        """What the JVM itself said since the last start."""
        return self.root / "logs" / "console.log"

    @property
    def fencing_properties(self) -> Path:
        """Properties of the controller that runs alone after a kill."""
        return self.root / "controller.properties"

    @property
    def fencing_log(self) -> Path:
        """The log of the last controller that ran alone."""
        return self.root / "logs" / "controller.log"

    @property
    def was_killed(self) -> bool:
        """Whether Kafka ran here, and did not stop in order."""
        ran = (self.data / "__cluster_metadata-0").is_dir()
        return ran and not (self.data / ".kafka_cleanshutdown").exists()

    @property
    def lock(self) -> Path:
        """Held by whoever starts or stops the broker."""
        return self.root / "start.lock"

    def create(self) -> None:
        """Create the directories."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(exist_ok=True)

    def recall(self) -> Memory | None:
        """Return what was remembered; None at first, or when the file is not readable any more."""
        try:
            return msgspec.json.decode((self.root / "broker.json").read_bytes(), type=Memory)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def remember(self, memory: Memory) -> None:
        """Replace what was remembered, whole or not at all."""
        draft = self.root / "broker.json.new"
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(memory)))
        draft.replace(self.root / "broker.json")
