"""`harn orchestrator queue`: how worker queues stand; run what is on one, or remove it.

    harn orchestrator queue --config consumer/harn.toml --state-dir ./state ls

Source: seed worker-dispatch, "CLI workflow"; SEMANTICS 5.4, 5.5.
"""

# The supervisor of `harn orchestrator serve` imports this module, and needs none of the
# application: what does the work is imported by the command that is run.
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from streams.cli.options import StateDir, settings_from
from streams.errors import ConfigError
from streams.settings import Settings

__all__ = ["app"]

app = typer.Typer(help="Inspect, drain and purge worker queues.", invoke_without_command=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class _Common(NamedTuple):
    """What stands before the subcommand."""

    settings: Settings
    manifest: Path | None


@app.callback()
def _queue(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "--manifest",
            "-m",
            help="The consumer's manifest: jobs are resolved by the ids of its triggers.",
            show_default="harn.toml where there is one",
        ),
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Inspect, drain and purge worker queues; alone it is `ls`.

    With a broker of our own, and nobody who runs the roles relay and scheduler, they run here for
    as long as the command takes.
    """
    context.obj = _Common(settings_from(state_dir=state_dir), config)
    if context.invoked_subcommand is None:
        _ls(context.obj, as_json=as_json)


@app.command()
def ls(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the dispatcher, every queue, and how its fairness keys stand.

    It counts what was enqueued before it was called, from any host.  Exit codes: 0; 5 when the
    scheduler does not answer.
    """
    _ls(context.obj, as_json=as_json)


def _ls(common: _Common, *, as_json: bool) -> None:
    from streams.cli import queue_commands

    queue_commands.show(common.settings, as_json=as_json)


@app.command()
def purge(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue's name.")],
    confirm: Annotated[bool, typer.Option("--confirm", help="Do it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the jobs of a queue that nobody has claimed; claimed ones stay.

    Exit codes: 0 removed; 2 not confirmed; 5 the scheduler does not answer.
    """
    if not confirm:
        raise ConfigError(
            f"purging {queue!r} removes its jobs, and nothing was removed",
            remedy=f"run `harn orchestrator queue purge {queue} --confirm`",
        )
    from streams.cli import queue_commands

    common: _Common = context.obj
    queue_commands.purge(common.settings, _named(queue), as_json=as_json)


def _named(queue: str) -> str:
    """Return a queue's name as it was given.  Raises ConfigError when it is blank."""
    if not queue.strip():
        raise ConfigError("QUEUE is blank, expected the name of a queue")
    return queue


@app.command()
def drain(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue's name.")],
    consumer_id: Annotated[
        str | None, typer.Option(help="Who claims the jobs.", show_default="host, process and time")
    ] = None,
    claim_ttl: Annotated[
        str, typer.Option(help="How long a claim lasts unless it is renewed, such as 30s or 5m.")
    ] = "5m",
    concurrency: Annotated[
        int, typer.Option(min=1, max=1_000, help="Handlers that run at a time, at most.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Run the jobs of a queue that are ready, each once, by the handlers of the manifest.

    A job that succeeds or is skipped is acked; one that fails is answered and left, so that it can
    be claimed again when its claim has run out.

    Exit codes: 0 nothing ready is left; 2 settings, or another worker has taken its name;
    4 manifest; 5 the scheduler does not answer.
    """
    from streams.cli import queue_drain

    common: _Common = context.obj
    queue_drain.drain(
        common.settings,
        _named(queue),
        manifest=common.manifest,
        consumer_id=consumer_id,
        claim_ttl=claim_ttl,
        concurrency=concurrency,
        as_json=as_json,
    )
