"""`harn stage`: an operator's word about a halted partition."""

from __future__ import annotations

from typing import Annotated

import typer

from streams.cli.cluster import cluster_of
from streams.cli.options import StateDir, settings_from
from streams.core.record import Position
from streams.edge.stage_words import resume_partition, skip_record, stage_named, stage_of
from streams.errors import ConfigError

app = typer.Typer()


@app.callback()
def _group() -> None:
    """Resume a halted partition, or skip what halted it."""


@app.command()
def resume(
    stage: Annotated[str, typer.Argument(help="The stage, for example dispatch.")],
    partition: Annotated[int, typer.Argument(help="The halted partition.", min=0)],
    state_dir: StateDir = None,
) -> None:
    """Try a halted partition's record again, after the fold was mended."""
    stage_named(stage)
    settings = cluster_of(settings_from(state_dir=state_dir))
    position = resume_partition(settings, stage, partition)
    typer.echo(f"{stage} partition {partition} is told to go on (word at {position})")


@app.command()
def skip(
    position: Annotated[
        str,
        typer.Argument(
            help="Position of the record, topic/partition/offset, as the log line says it."
        ),
    ],
    timer: Annotated[
        str | None,
        typer.Option(
            help="Key of the row whose timer failed there, as the log line says it: the row is "
            "passed over, the record is not."
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for the audit trail.")] = "",
    state_dir: StateDir = None,
) -> None:
    """Pass over what halted a partition, a record or a timer: it is quarantined, on the record."""
    try:
        record = Position.parse(position)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    stage_of(record.topic)
    settings = cluster_of(settings_from(state_dir=state_dir))
    word = skip_record(settings, record, reason, timer=timer)
    what = record if timer is None else f"the timer of {timer} at {record}"
    typer.echo(f"{what} will be passed over (word at {word})")
