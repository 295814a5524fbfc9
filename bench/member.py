"""A process that runs the benchmark's stage: `python -m bench.member NAME [--timers]`.

It is a member like any other, on the real runtime; settings come from the environment.  It ends on
SIGTERM, and non-zero when the stage crashes.
"""

from __future__ import annotations

import argparse
import asyncio
import signal

from prometheus_client import CollectorRegistry

from bench.orders import PARTITIONS, bench_codec, bench_stage
from streams.agents.app import StageApp
from streams.agents.group import StageGroup, as_harn_error
from streams.observe import logs
from streams.observe.stage_metrics import StageCollectors, StageMetrics
from streams.settings import Settings


async def serve(name: str, *, mailbox: str | None, timers: bool) -> None:
    """Run the stage until SIGTERM.  Raises HarnError when it crashes."""
    settings = Settings.from_env()
    logs.configure(settings.log_level, settings.log_format)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = StageApp(
        bench_stage(name, bench_codec(), mailbox=mailbox, timers=timers),
        settings,
        journal_partitions=PARTITIONS,
        metrics=StageMetrics(StageCollectors(CollectorRegistry()), name),
    )
    group = StageGroup([app])
    starting = asyncio.ensure_future(group.start())
    stopping = asyncio.ensure_future(stop.wait())
    crashing = asyncio.ensure_future(group.crashed())
    await asyncio.wait({stopping, crashing}, return_when=asyncio.FIRST_COMPLETED)
    if crashing.done():
        raise as_harn_error(crashing.result())
    starting.cancel()
    crashing.cancel()
    await group.stop()


def main() -> None:
    """Run one member."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--mailbox")
    parser.add_argument("--timers", action="store_true")
    options = parser.parse_args()
    asyncio.run(serve(options.name, mailbox=options.mailbox, timers=options.timers))


if __name__ == "__main__":
    main()
