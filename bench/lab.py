"""Where measurements happen: a broker of their own, and how much and how often to measure."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.orders import PARTITIONS, bench_topology
from streams.edge.broker import ensure_broker, stop_broker
from streams.provision import provision_topics
from streams.settings import Settings

_QUICK_SHARE = 0.1


@dataclass(slots=True)
class Lab:
    """A cluster to measure on.

    `rounds` is how often each thing is measured; `quick` shrinks loads tenfold, to see that a
    measurement works at all: its numbers mean nothing.  `broker_pid` is None for a cluster that was
    there before.
    """

    settings: Settings
    folder: Path
    rounds: int = 3
    quick: bool = False
    broker_pid: int | None = None
    _run: str = field(default_factory=lambda: f"{int(time.time()):x}")
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def scaled(self, count: int) -> int:
        """`count`, or a tenth of it in a quick run."""
        return max(1, int(count * _QUICK_SHARE)) if self.quick else count

    def new_name(self, what: str) -> str:
        """A name that nothing on this cluster has yet."""
        return f"{what}-{self._run}-{next(self._numbers)}"

    def new_stage(self, what: str, *, mailbox: str | None = None, timers: bool = False) -> str:
        """Lay out the topics of a benchmark stage; return its name."""
        name = self.new_name(what)
        declared = bench_topology(name, mailbox=mailbox, timers=timers)
        provision_topics(self.settings, declared=declared)
        return name


@contextmanager
def lab(*, rounds: int, quick: bool) -> Iterator[Lab]:
    """A lab on the cluster that the environment names, or on a broker that ends with it."""
    with TemporaryDirectory(prefix="harn-bench-") as folder:
        path = Path(folder)
        settings = Settings.from_env(
            state_dir=path / "state",
            partitions=PARTITIONS,
            log_format="json",
            http_port=0,
            metrics_port=0,
        )
        handle = ensure_broker(settings)
        try:
            placed = settings.with_bootstrap(handle.bootstrap)
            yield Lab(placed, path, rounds, quick, broker_pid=handle.pid)
        finally:
            if handle.kind == "embedded":
                stop_broker(settings.state_dir)
