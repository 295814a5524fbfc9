"""`harn topology`: check the declarations, compare them with a cluster, provision it, show them.

Exit codes of `plan`: 0 nothing to do, 2 changes pending (topics to create or grow, or settings that
`apply --sync` would set), 1 refused (something that no command changes).
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from streams.cli.broker import progress_shown
from streams.cli.options import StateDir, notice, screen, settings_from
from streams.cli.plain import escape
from streams.edge.broker import ensure_broker
from streams.edge.codecs import codec_of
from streams.edge.turns.kafka.growth import NOTICE_S, Growth
from streams.provision import check_topology, layout_of, plan_topics, provision_topics
from streams.settings import Settings
from topology import TOPOLOGY
from topology.acls import acls, command
from topology.describe import as_json, mermaid, page, topic_rows
from topology.plan import ChangeKind, Plan

__all__ = ["app"]

app = typer.Typer(help="Plan, apply and describe topics and stages.")

EXIT_REFUSED = 1
EXIT_PENDING = 2


class Format(StrEnum):
    """How `describe` shows the topology."""

    TABLE = "table"
    MERMAID = "mermaid"
    JSON = "json"
    MARKDOWN = "markdown"


@app.command()
def check() -> None:
    """Prove that topics, stages, tables and settings fit together; needs no broker."""
    settings = settings_from()
    check_topology(settings)
    typer.echo(
        f"{len(TOPOLOGY.topics)} topics, {len(TOPOLOGY.stages)} stages and {len(TOPOLOGY.edges)} "
        "edges fit together"
    )


@app.command("plan")
def show_plan(state_dir: StateDir = None) -> None:
    """Show what `apply` would do.  Exit code 0: nothing, 2: changes pending, 1: refused."""
    planned = plan_topics(_on_a_broker(settings_from(state_dir=state_dir)))
    _print(planned)
    if planned.refused:
        raise typer.Exit(EXIT_REFUSED)
    if planned.pending(sync=True):
        raise typer.Exit(EXIT_PENDING)


@app.command("apply")
def apply_plan(
    state_dir: StateDir = None,
    sync: Annotated[
        bool, typer.Option("--sync", help="Set settings of existing topics that drifted as well.")
    ] = False,
) -> None:
    """Create missing topics and grow those that may grow.  Deletes and shrinks nothing."""
    settings = _on_a_broker(settings_from(state_dir=state_dir))
    done = provision_topics(settings, sync=sync)
    _print(done, sync=sync)


@app.command("grow-turns")
def grow_turns(state_dir: StateDir = None) -> None:
    """Give the topics of agent turns the partitions that AGENT_TURNS_PARTITIONS says.

    Stop whatever enqueues turns, let the workers finish, and stop them: while a turn has not ended,
    or a worker is there, it is refused and nothing is changed.  When it is cut off, run it again.

    Exit codes: 0 done, or nothing to do; 2 settings; 3 refused; 5 Kafka is away.
    """
    settings = _on_a_broker(settings_from(state_dir=state_dir))
    notice(f"whoever enqueues is given {NOTICE_S:.0f} s to notice")
    grown = Growth(settings, codec_of(settings)).run()
    if grown is None:
        typer.echo(f"{settings.agent_turns_partitions} partitions: nothing to do")
        return
    typer.echo(
        f"from {grown.before} to {grown.after} partitions; moved {grown.sessions} records of "
        f"sessions and {grown.jobs} goals and tasks"
    )
    if grown.failed:
        notice(f"{grown.failed} goals and tasks were enqueued meanwhile: they have failed")
    if grown.unreadable:
        notice(f"{grown.unreadable} records could not be read, and stay where they are")


@app.command()
def describe(
    state_dir: StateDir = None,
    shape: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TABLE,
) -> None:
    """Show topics, stages and edges as declared, with the numbers of the settings."""
    layout = layout_of(settings_from(state_dir=state_dir))
    match shape:
        case Format.MERMAID:
            sys.stdout.write(mermaid(TOPOLOGY))
        case Format.JSON:
            typer.echo(json.dumps(as_json(TOPOLOGY, layout), indent=2, ensure_ascii=False))
        case Format.MARKDOWN:
            sys.stdout.write(page(TOPOLOGY))
        case Format.TABLE:
            columns = ("topic", "role", "partitions", "key", "cleanup", "retention", "used by")
            table = Table(*columns, box=None, pad_edge=False)
            for row in topic_rows(TOPOLOGY, layout):
                table.add_row(
                    row.name,
                    row.role,
                    row.partitions,
                    escape(row.key),
                    row.cleanup,
                    row.retention,
                    row.used_by,
                )
            screen().print(table)


@app.command("acls")
def show_acls(
    principal_prefix: Annotated[
        str, typer.Option("--principal-prefix", help="What stands before a role's name.")
    ] = "User:harn-",
) -> None:
    """Print the `kafka-acls` commands that grant each role what it needs, and no more."""
    for acl in acls(TOPOLOGY):
        typer.echo(command(acl, principal_prefix=principal_prefix))


def _on_a_broker(settings: Settings) -> Settings:
    """Return the settings for the named cluster, or for our own broker, started when need be."""
    check_topology(settings)
    with progress_shown() as progress:
        return settings.with_bootstrap(ensure_broker(settings, progress).bootstrap)


def _print(planned: Plan, *, sync: bool | None = None) -> None:
    """Print a plan; `sync` None means that it was not carried out."""
    if not planned.changes:
        typer.echo("the cluster is as declared: nothing to do")
        return
    table = Table("change", "topic", "what", box=None, pad_edge=False)
    for change in planned.changes:
        what = f"{change.detail}; {change.remedy}" if change.remedy else change.detail
        table.add_row(str(change.kind), change.topic.name, escape(what))
    screen().print(table)
    drifted = sum(bool(change.settings) for change in planned.of(ChangeKind.DRIFT))
    if drifted and not sync:
        notice(f"{drifted} topics have other settings; `harn topology apply --sync` sets them")
    if sync is not None and not planned.pending(sync=sync):
        typer.echo("nothing was changed")
