"""`harn audit`: recompute decisions from the log, and compare them with what was written."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from streams.audit.divergence import Divergence
from streams.audit.kafka_log import KafkaLog
from streams.audit.log import LogReader
from streams.audit.plan import Plan, Scope, make_plan
from streams.audit.turn_invariants import TurnVerdict, judge_turns
from streams.audit.verdict import Judged, Report, Verdict
from streams.audit.verify import Progress, verify_plan
from streams.audit.workers import collect_rarely, verify_in_processes
from streams.cli.audit_explain import explain
from streams.cli.audit_invariants import invariants
from streams.cli.audit_turns import print_turns, turns_as_json
from streams.cli.cluster import cluster_of
from streams.cli.options import StateDir, screen, settings_from
from streams.cli.plain import escape
from streams.edge.codecs import codec_of
from streams.engine import BoundStage
from streams.errors import AuditIncomplete
from streams.settings import Settings
from streams.stages import bind

_RECORDS_ALONE = 50_000
"""One process has judged so many records before several have started."""

app = typer.Typer()


@app.callback()
def _group() -> None:
    """Recompute decisions from the log and compare."""


@app.command()
def verify(
    stage: Annotated[
        str | None, typer.Option(help="Judge this stage only.", show_default="all")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Judge this partition only.", show_default="all")
    ] = None,
    from_checkpoint: Annotated[
        str | None,
        typer.Option(
            "--from-checkpoint",
            metavar="first|last|N",
            help="Begin at a checkpoint, the first, the last or that of transaction N, even where "
            "the mailbox still has its beginning.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Use so many processes.",
            show_default="one a processor, or one for a short log",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Recompute every fold over its mailbox and compare outputs, rows, journal and offsets.

    Reads only, while everything runs.  The first divergence of each partition is named by position.
    Agent turns, which no fold decides, are judged by their invariants, unless a stage or a
    partition is asked for.

    Exit codes: 0 all of it is as recorded; 1 something diverges; 2 a range cannot be judged, or the
    options are wrong; 3 topics are missing; 5 Kafka is out of reach.
    """
    scope = Scope(stage=stage, partition=partition, from_checkpoint=from_checkpoint)
    settings = cluster_of(settings_from(state_dir=state_dir))
    collect_rarely()
    report = _verify(settings, scope, processes)
    turns = _judge_turns(settings) if stage is None and partition is None else []
    wrong = any(each.violations for each in turns)
    if as_json:
        document = report.as_json() | {"turns": turns_as_json(turns)}
        if wrong:
            document["verdict"] = "diverges"
        typer.echo(msgspec.json.format(msgspec.json.encode(document)).decode())
    else:
        _print(report)
        print_turns(screen(), turns)
    if wrong and not report.divergences:
        raise typer.Exit(1)
    _raise_verdict(report)


app.command()(invariants)
app.command()(explain)


def judge(settings: Settings) -> Report:
    """Judge everything, print the verdict, return it."""
    report = _verify(settings, Scope(), None)
    _print(report)
    return report


def _verify(settings: Settings, scope: Scope, processes: int | None) -> Report:
    started_s = time.monotonic()
    with _progress() as progress:
        with _open(settings) as (log, stages):
            plan = make_plan(log, stages, scope)
            count = processes or _processes_for(plan)
            if count == 1:
                return verify_plan(log, stages, plan, progress, started_s)
        return verify_in_processes(partial(_open, settings), plan, count, progress, started_s)


def _judge_turns(settings: Settings) -> list[TurnVerdict]:
    with KafkaLog(settings) as log:
        return judge_turns(log, codec_of(settings))


@contextmanager
def _open(settings: Settings) -> Iterator[tuple[LogReader, Mapping[str, BoundStage]]]:
    codec = codec_of(settings)
    with KafkaLog(settings) as log:
        yield log, bind(codec, log.partitions)


def _processes_for(plan: Plan) -> int:
    if plan.records_max < _RECORDS_ALONE:
        return 1
    return min(os.cpu_count() or 1, len(plan.partitions))


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show what is being done to whoever watches."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    with Console(stderr=True).status("reading") as status:
        yield lambda text: status.update(escape(text))


def _print(report: Report) -> None:
    table = Table(
        "stage",
        "partition",
        "verdict",
        "offsets judged",
        "stream time",
        "transactions",
        "records",
        "outputs",
        "rows",
        box=None,
        pad_edge=False,
    )
    for verdict in report.verdicts:
        for row in _rows(verdict):
            table.add_row(*row)
    console = screen()
    console.print(table)
    for verdict in report.verdicts:
        for note in verdict.notes:
            console.print(escape(f"note: {_name(verdict)}: {note}"))
        for each in verdict.unjudged:
            offsets = f"{each.first_offset}..{each.next_offset}"
            console.print(escape(f"not judged: {_name(verdict)} {offsets}: {each.reason}"))
    for divergence in report.divergences:
        console.print(escape(_told(divergence)))
    console.print(escape(_summary(report)))


def _rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    """Yield one row per judged range, at least one; the counts stand in the first."""
    counts = [verdict.transactions, verdict.records, verdict.outputs, verdict.rows]
    name, number = verdict.stage, str(verdict.partition)
    judged = verdict.judged or [Judged("", 0, 0, 0, 0)]
    for at, each in enumerate(judged):
        offsets = f"{each.first_offset}..{each.next_offset} of {verdict.mailbox_end}"
        if each.began and each.first_offset > 0:
            offsets += f" (from {each.began})"
        times = f"{_time(each.first_ms)} - {_time(each.last_ms)}" if each.first_ms else "-"
        shown = [f"{count:,}" if at == 0 else "" for count in counts]
        yield name, number, verdict.word, offsets, times, *shown


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _told(found: Divergence) -> str:
    lines = [
        f"diverges at {found.place}: {str(found.kind).replace('_', ' ')}",
        f"  expected  {found.expected}",
        f"  found     {found.actual}",
    ]
    if found.cause is not None:
        lines.append(f"  cause     {found.cause}")
    if found.note is not None:
        lines.append(f"  note      {found.note}")
    return "\n".join(lines)


def _summary(report: Report) -> str:
    count = len(report.verdicts)
    speed = report.records_read / report.seconds if report.seconds else 0
    more = report.strays_count - len(report.strays)
    strays = f", {more:,} more records of no stage" if more else ""
    return (
        f"{report.word}: {report.records:,} records of {count} stage partitions in "
        f"{report.seconds:.1f} s ({report.records_read:,} compared, {speed:,.0f}/s){strays}"
    )


def _name(verdict: Verdict) -> str:
    return f"{verdict.stage}/{verdict.partition}"


def _raise_verdict(report: Report) -> None:
    """End the command as the verdict demands: the first divergence, else what was not judged."""
    if report.divergences:
        raise report.divergences[0]
    if report.unjudged:
        verdict, first = report.unjudged[0]
        more = len(report.unjudged) - 1
        raise AuditIncomplete(
            f"{verdict.mailbox}/{verdict.partition} offsets {first.first_offset} to "
            f"{first.next_offset} cannot be judged by {verdict.stage}: {first.reason}"
            + (f" (and {more} more ranges)" if more else ""),
        )
