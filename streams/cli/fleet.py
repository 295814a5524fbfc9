"""`harn fleet`: the workers that run agent turns, and how many turns there are.

Source: seed queue-driven-agent-dispatch, "Fleet visibility"; SEMANTICS 8.9.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from streams.cli.cluster import cluster_of
from streams.cli.operation import AsJson
from streams.cli.options import StateDir, notice, screen, settings_from
from streams.cli.plain import escape
from streams.edge.codecs import codec_of
from streams.edge.turns.fleet_report import FleetReport, fleet_report
from streams.edge.turns.turns_json import worker_json
from streams.settings import Settings

__all__ = ["app"]

app = typer.Typer()


_EVERY_S = 2.0

Watch = Annotated[
    bool, typer.Option("--watch", help="Show it anew every two seconds, until Ctrl-C.")
]


@app.command()
def fleet(as_json: AsJson = False, watch: Watch = False, state_dir: StateDir = None) -> None:
    """Show the workers that were heard of within 90 s, and how many turns are not done.

    Exit codes: 0; 2 settings; 3 when topics are missing; 5 what carries turns is away.
    """
    settings = settings_from(state_dir=state_dir)
    if settings.turn_queue_backend == "kafka":
        settings = cluster_of(settings)
    # One run for all looks: a Ctrl-C in the last step of a run is lost with it.
    asyncio.run(_show(settings, as_json=as_json, watch=watch))


async def _show(settings: Settings, *, as_json: bool, watch: bool) -> None:
    while True:
        report = await fleet_report(settings, codec_of(settings))
        if as_json:
            typer.echo(_as_json(report))
        else:
            _print(report)
        if not watch:
            return
        await asyncio.sleep(_EVERY_S)


def _as_json(report: FleetReport) -> str:
    told = {
        "queue_backend": report.backend,
        "queue_depth": report.depth,
        "dispatch_workers": [worker_json(worker) for worker in report.workers],
    }
    return msgspec.json.encode(told).decode()


def _print(report: FleetReport) -> None:
    table = Table("worker", "host", "capacity", "sessions", box=None, pad_edge=False)
    for worker in report.workers:
        sessions = str(len(worker.active_sessions))
        table.add_row(escape(worker.worker_id), escape(worker.host), str(worker.capacity), sessions)
    screen().print(table)
    workers = _counted(len(report.workers), "worker")
    notice(f"{workers}, {_counted(report.depth, 'turn')} on {report.backend}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
