"""`harn orchestrator`: run the roles of the application, and look after worker queues."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from streams.cli import orchestrator_queue
from streams.cli.options import StateDir, settings_from
from streams.observe import logs
from streams.roles import parse_roles
from streams.supervisor import LIFELINE, RESTARTS, Supervisor

app = typer.Typer()
app.add_typer(orchestrator_queue.app, name="queue")


@app.callback()
def _group() -> None:
    """Run the roles of the application."""


@app.command()
def serve(
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest",
            "-m",
            help="Manifest whose triggers are applied and whose handlers run here.",
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help="Run only this role; may be given several times."),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", help="Where the embedded broker and stores keep their files."),
    ] = None,
    provision: Annotated[
        bool,
        typer.Option(
            help="Create missing topics first; off where `harn topology apply` is its own step."
        ),
    ] = True,
    apply: Annotated[
        bool, typer.Option(help="Apply the manifest's triggers once the registry answers.")
    ] = True,
    supervise: Annotated[
        bool, typer.Option(help="Start again after a failure; off where something else does it.")
    ] = True,
    lifeline: Annotated[int | None, typer.Option(LIFELINE, hidden=True)] = None,
    restarts: Annotated[int, typer.Option(RESTARTS, hidden=True)] = 0,
) -> None:
    """Run roles until SIGTERM: ingest, registry, inbox, dispatch, invoker, relay, scheduler.

    Without KAFKA_BOOTSTRAP_SERVERS a Kafka of its own is started in the state directory and left
    running.

    Exit codes: 0 stopped on request; 2 settings, 3 topology, 4 manifest; 5 broker.
    """
    settings = settings_from(state_dir=state_dir)
    logs.configure(settings.log_level, settings.log_format)
    if supervise:
        command = [sys.executable, "-m", "streams.cli.main", *_unsupervised(sys.argv[1:])]
        raise typer.Exit(Supervisor(command).run())
    # What follows needs all of the application, and the supervisor none of it.
    from streams.cli.serving import serve_roles  # noqa: PLC0415

    roles = parse_roles(role)
    serve_roles(
        settings,
        roles,
        manifest,
        provision=provision,
        apply=apply,
        lifeline=lifeline,
        restarts=restarts,
    )


@app.command()
def metrics(state_dir: StateDir = None) -> None:
    """Print the scheduler's metrics of every queue, in Prometheus' text format, from any host.

    They are those that its members last published.  What one process counts besides is on its
    metrics port, at /metrics.  Exit codes: 0; 3 when topics are missing; 5 broker.
    """
    from streams.cli.cluster import cluster_with_topics  # noqa: PLC0415 - as above
    from streams.cli.queue_commands import print_metrics  # noqa: PLC0415

    print_metrics(cluster_with_topics(settings_from(state_dir=state_dir)))


def _unsupervised(arguments: list[str]) -> list[str]:
    return [*(word for word in arguments if word != "--supervise"), "--no-supervise"]
