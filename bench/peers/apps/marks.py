"""Where jobs say when they started: eight bytes a job in a file that all processes map.

Standard library only: it runs in the environment of the other queues.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

PAYLOAD = "x" * 300
_BYTES = 8


def make(path: Path, jobs: int) -> None:
    """Make an empty file for that many jobs."""
    path.write_bytes(bytes(_BYTES * jobs))


class Marks:
    """When each job started, on the clock that all processes share; 0 for not yet."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.started_ns = memoryview(self._map).cast("q")

    @classmethod
    def of_environment(cls) -> Marks:
        """Open the file that the environment names."""
        return cls(Path(os.environ["BENCH_MARKS"]))

    def started(self, job: int) -> None:
        """Say that a job starts now."""
        self.started_ns[job] = time.monotonic_ns()

    def close(self) -> None:
        """Let the file go."""
        self.started_ns.release()
        self._map.close()
