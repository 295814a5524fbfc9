"""A worker of turns on Kafka, to be killed or stopped: `python kafka_turn_worker.py LOG`.

Settings come from the environment.  Each line of the log is appended whole: which turn began or
ended.  SIGTERM ends it in order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from streams.codec import Codec
from streams.edge.turns.body import Body, Claimed, Ending
from streams.edge.turns.kafka.serve import serve
from streams.observe import logs
from streams.settings import Settings
from tests.support.turn_worker import append

_TURN_S = 0.01


class Logged:
    """Bodies that say what they do."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def body_for(self, kind: str, agent_name: str, /) -> Body:  # noqa: ARG002 - the seam's
        return self._run

    async def _run(self, claimed: Claimed) -> Ending:
        job_id = claimed.envelope.job_id
        append(self._log, "start", job_id, f"{os.getpid()}")
        await asyncio.sleep(_TURN_S)
        append(self._log, "end", job_id, f"{os.getpid()}")
        return Ending("completed", result=f"{os.getpid()}")

    def turn_ended(self, outcome: str) -> None:
        """Say nothing."""


async def main(log: Path) -> None:
    settings, bodies, stop = Settings.from_env(), Logged(log), asyncio.Event()
    logs.configure("info", "text")
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    worker_id = f"w{os.getpid()}"
    await serve(settings, Codec(), bodies, slots=8, worker_id=worker_id, stop=stop, observer=bodies)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
