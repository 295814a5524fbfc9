"""`harn queue`: create worker queues, and list those that are there.

Source: DESIGN "Who creates topics"; seed worker-dispatch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, cast

import msgspec
import typer
from rich.table import Table

from streams.cli.cluster import cluster_with_topics
from streams.cli.operation import AsJson
from streams.cli.options import StateDir, notice, screen, settings_from
from streams.cli.plain import escape
from streams.core.ready_jobs import SHARDS_MAX
from streams.core.wire import FairnessDimension
from streams.edge.codecs import codec_of
from streams.edge.queue_catalog import queue_topics, read_configured
from streams.edge.queue_creation import create_queue
from streams.edge.topic_reader import topic_names

__all__ = ["app"]

app = typer.Typer(help="Create worker queues, and list them.", no_args_is_help=True)


class ShardBy(StrEnum):
    """What of a job decides its shard."""

    TENANT = "tenant"
    BINDING = "binding"
    TRIGGER_ID = "trigger-id"
    TENANT_AND_BINDING = "tenant-and-binding"


@app.command()
def create(
    queue: Annotated[str, typer.Argument(help="Its name, as in worker://<queue>.")],
    shards: Annotated[
        int,
        typer.Option(
            min=1, max=SHARDS_MAX, help="Parts that are scheduled each by itself, for throughput."
        ),
    ] = 1,
    shard_by: Annotated[
        ShardBy, typer.Option("--shard-by", help="What of a job decides its shard.")
    ] = ShardBy.TENANT,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Create a queue: its topics, and in how many shards it is dealt out.  Idempotent.

    A queue also comes into being with the first job that anyone produces to its topic; it then has
    one shard.  Shards stay as they were created.

    Exit codes: 0 it is there; 2 it is there with other shards; 3 its name cannot be used.
    """
    settings = cluster_with_topics(settings_from(state_dir=state_dir))
    by = cast("FairnessDimension", shard_by.value.replace("-", "_"))
    created = create_queue(settings, codec_of(settings), queue, shards=shards, shard_by=by)
    if as_json:
        typer.echo(msgspec.json.encode(created._asdict()).decode())
        return
    for topic in created.topics:
        typer.echo(f"created {topic}")
    dealt = "1 shard" if created.shards == 1 else f"{created.shards} shards by {shard_by.value}"
    typer.echo(f"queue {created.queue}: {dealt}")


@app.command("list")
def list_(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the queues of the cluster: every topic `worker.<queue>`, and its shards."""
    settings = cluster_with_topics(settings_from(state_dir=state_dir))
    configured = read_configured(settings, codec_of(settings))
    rows = [
        {
            "queue": queue,
            "topic": topic,
            "shards": configured[queue]["shards"] if queue in configured else 1,
            "shard_by": configured[queue]["shard_by"] if queue in configured else "tenant",
        }
        for queue, topic in queue_topics(topic_names(settings)).items()
    ]
    if as_json:
        typer.echo(msgspec.json.encode(rows).decode())
        return
    table = Table("queue", "topic", "shards", box=None, pad_edge=False)
    for row in rows:
        by = "" if row["shards"] == 1 else f" by {str(row['shard_by']).replace('_', '-')}"
        table.add_row(escape(str(row["queue"])), escape(str(row["topic"])), f"{row['shards']}{by}")
    screen().print(table)
    notice(f"{len(rows)} queues")
