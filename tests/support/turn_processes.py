"""Workers of turns on Kafka in processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

from streams.settings import Settings

ROOT = Path(__file__).parents[2]

ROOT = Path(__file__).parents[2]


@contextmanager
def processes(settings: Settings, folder: Path, count: int) -> Iterator[list[Popen[bytes]]]:
    """Workers in processes of their own; whatever is left of them is killed."""
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": str(settings.bootstrap),
        "AGENT_TURNS_PARTITIONS": str(settings.agent_turns_partitions),
        "HARN_SESSION_TIMEOUT_MS": "1500",
        "HARN_STATE_DIR": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    program = [sys.executable, str(ROOT / "tests/support/kafka_turn_worker.py")]
    with (folder / "stderr").open("ab") as log:
        started = [
            Popen([*program, str(folder / "log")], env=environment, stderr=log)
            for _ in range(count)
        ]
    try:
        yield started
    finally:
        for each in started:
            each.kill()
            each.wait()


def said_by(folder: Path) -> str:
    return (folder / "stderr").read_text()[-2_000:]
