"""`agent-dispatch-worker`: run agent turns, on whatever carries them.

Source: seed queue-driven-agent-dispatch, "The model"; SEMANTICS 8.8.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.cluster import cluster_of
from streams.cli.main import run_and_exit
from streams.cli.options import StateDir, settings_from
from streams.edge.codecs import codec_of
from streams.edge.handlers import MANIFEST_NAME
from streams.edge.turns.agents import Agents
from streams.errors import ConfigError
from streams.observe import logs
from streams.provision import provision_topics
from streams.turn_working import run_turn_worker

__all__ = ["SLOTS_MAX", "app", "main", "worker_id_of"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

SLOTS_MAX = 1_000
"""Turns of one worker at a time: a thread each, at worst."""

_ID_CHARS_MAX = 200


def main() -> None:
    """Run the command with the arguments of the process, and exit."""
    run_and_exit(app, None, "agent-dispatch-worker")


@app.command()
def work(
    workers: Annotated[
        int, typer.Option(min=1, max=SLOTS_MAX, help="Turns that run at a time, at most.")
    ] = 1,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "--manifest",
            "-m",
            help=f"Manifest whose [agents] run turns; {MANIFEST_NAME} where there is one.",
        ),
    ] = None,
    worker_id: Annotated[
        str | None, typer.Option(help="Name of this worker in the fleet; else one is made.")
    ] = None,
    provision: Annotated[
        bool, typer.Option(help="Create missing topics first; off where it is a step of its own.")
    ] = True,
    state_dir: StateDir = None,
) -> None:
    """Run agent turns until SIGTERM; then let those that run end, for the drain time.

    SIGHUP reads the manifest anew.

    TASK_QUEUE_BACKEND says what carries turns.  Agents are functions that a manifest's [agents] or
    entry points of installed distributions (group harn.agents) name.

    Exit codes: 0 stopped on request; 2 settings, 3 topology, 4 manifest; 5 what carries turns is
    away or refuses; 7 agents that do not end.
    """
    name = worker_id_of(worker_id)
    settings = settings_from(state_dir=state_dir)
    logs.configure(settings.log_level, settings.log_format)
    config = config or settings.manifest
    if config is None and Path(MANIFEST_NAME).exists():
        config = Path(MANIFEST_NAME)
    agents = Agents.load(config)
    if settings.turn_queue_backend == "kafka":
        settings = cluster_of(settings)
        if provision:
            provision_topics(settings)
    asyncio.run(
        run_turn_worker(
            settings,
            codec_of(settings),
            agents,
            load=partial(Agents.load, config),
            slots=workers,
            worker_id=name,
        )
    )


def worker_id_of(given: str | None) -> str:
    """Return the worker's name.  Raises ConfigError for one that cannot be one."""
    if given is None:
        return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    name = given.strip()
    if not name or len(name) > _ID_CHARS_MAX or not name.isprintable():
        raise ConfigError(
            f"--worker-id is {given!r}, expected 1 to {_ID_CHARS_MAX} printable characters, "
            "not all blank"
        )
    return name


if __name__ == "__main__":
    main()
