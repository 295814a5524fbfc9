"""`harn worker`: run the jobs of worker queues by the handlers of a consumer manifest.

Source: seed worker-dispatch, "Producer / consumer split"; DESIGN "Roles".
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.cluster import cluster_of
from streams.cli.options import StateDir, manifest_of, settings_from
from streams.core.manifest_durations import read_timing
from streams.core.manifest_place import Place
from streams.edge.codecs import codec_of
from streams.edge.handlers import MANIFEST_NAME
from streams.edge.worker import WorkerPlan
from streams.edge.worker.consumer import Consumer
from streams.edge.worker.plan import default_consumer_id
from streams.errors import ConfigError
from streams.exact_loop import exact_loop
from streams.observe import logs
from streams.provision import provision_topics
from streams.working import queue_keys, run_worker

__all__ = ["CLAIM_TTL_MS_MIN", "CONCURRENCY_MAX", "app", "claim_ttl_ms_of", "consumer_id_of"]

app = typer.Typer(help="Run the jobs of worker queues.", no_args_is_help=True)

CONCURRENCY_MAX = 1_000
"""Handlers of one worker at a time: a thread each, at worst."""

CLAIM_TTL_MS_MIN = 1_000
"""Shorter claims would run out while they are granted."""

_CLAIM_TTL_MS_MAX = 86_400_000
_CONSUMER_ID_CHARS_MAX = 200


@app.callback()
def _group() -> None:
    """Run the jobs of worker queues."""


@app.command()
def run(
    queues: Annotated[
        list[str], typer.Argument(metavar="QUEUE...", help="Queues, as in worker://<queue>.")
    ],
    concurrency: Annotated[
        int,
        typer.Option(min=1, max=CONCURRENCY_MAX, help="Handlers that run at a time, at most."),
    ] = 16,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "--manifest",
            "-m",
            help="Consumer manifest: names the handlers.",
            show_default=MANIFEST_NAME,
        ),
    ] = None,
    consumer_id: Annotated[
        str | None,
        typer.Option(help="Name of this worker; a restart under the same name takes its place."),
    ] = None,
    claim_ttl: Annotated[
        str, typer.Option(help="How long a claim lasts unless it is renewed, such as 30s or 5m.")
    ] = "5m",
    provision: Annotated[
        bool, typer.Option(help="Create missing topics first; off where it is a step of its own.")
    ] = True,
    state_dir: StateDir = None,
) -> None:
    """Run jobs until SIGTERM; then give back what has not begun, and let the rest end.

    SIGHUP reads the manifest anew.

    The scheduler grants jobs (`harn orchestrator serve`, or `--role relay --role scheduler`); any
    number of workers may share a queue.

    Exit codes: 0 stopped on request; 2 settings, or another worker has taken its name; 3 topology;
    4 manifest; 5 broker; 7 handlers that do not end.
    """
    ttl_ms = claim_ttl_ms_of(claim_ttl)
    name = consumer_id_of(consumer_id)
    settings = settings_from(state_dir=state_dir)
    logs.configure(settings.log_level, settings.log_format)
    manifest = manifest_of(settings, config)
    consumer = Consumer.load(manifest)
    settings = cluster_of(settings)
    if provision:
        provision_topics(settings)
    codec = codec_of(settings)
    plan = WorkerPlan(
        consumer_id=name,
        queue_keys=queue_keys(settings, codec, queues),
        concurrency=concurrency,
        claim_ttl_ms=ttl_ms,
    )
    with asyncio.Runner(loop_factory=exact_loop) as runner:
        load = partial(Consumer.load, manifest)
        runner.run(run_worker(settings, codec, consumer, plan, load=load))


def claim_ttl_ms_of(text: str) -> int:
    """Read `--claim-ttl`.  Raises ConfigError."""
    problems: list[str] = []
    ttl_ms = read_timing(_CLAIM_TTL_MS_MAX, "24h")(text, Place("--claim-ttl", problems))
    if not problems and ttl_ms < CLAIM_TTL_MS_MIN:
        problems.append(f"--claim-ttl is {text!r}, expected at least 1s")
    if problems:
        raise ConfigError(problems)
    return int(ttl_ms)


def consumer_id_of(given: str | None) -> str:
    """Return the worker's name.  Raises ConfigError for one that cannot be one."""
    if given is None:
        return default_consumer_id()
    name = given.strip()
    if not name or len(name) > _CONSUMER_ID_CHARS_MAX or not name.isprintable():
        raise ConfigError(
            f"--consumer-id is {given!r}, expected 1 to {_CONSUMER_ID_CHARS_MAX} printable "
            "characters, not all blank"
        )
    return name
