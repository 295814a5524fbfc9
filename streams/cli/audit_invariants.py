"""`harn audit invariants`: what must hold of queues and turns, judged on the log alone."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.table import Table

from streams.audit.kafka_log import KafkaLog
from streams.audit.queue_invariants import QueueVerdict, judge_queues
from streams.audit.turn_invariants import judge_turns
from streams.cli.audit_turns import print_turns, turns_as_json
from streams.cli.cluster import cluster_of
from streams.cli.options import StateDir, screen, settings_from
from streams.cli.plain import escape
from streams.edge.codecs import codec_of
from topology import TOPOLOGY

__all__ = ["invariants"]

_SHOWN_MAX = 20


def invariants(
    max_concurrent_per_key: Annotated[
        int,
        typer.Option(
            min=0,
            help="Also judge that no fairness key had more claims at once; 0 judges no such bound.",
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Judge worker queues and agent turns on the log: none lost, each ended once, in their order.

    Of queues also that leases never overlap, and that each fairness key that waited got its share;
    of turns that a session's run one after another, and that goals and tasks stand as their turns
    ended.

    It asks nothing of what decided, and reads while everything runs.

    Exit codes: 0 all of it holds; 1 something does not; 3 topics are missing; 5 Kafka is out of
    reach.
    """
    settings = cluster_of(settings_from(state_dir=state_dir))
    with KafkaLog(settings) as log:
        stage = TOPOLOGY.stage("scheduler")
        codec = codec_of(settings)
        verdicts = judge_queues(log, codec, stage, cap=max_concurrent_per_key)
        turns = judge_turns(log, codec)
    if as_json:
        document = {
            "queues": [_document(each) for each in verdicts],
            "turns": turns_as_json(turns),
        }
        typer.echo(msgspec.json.format(msgspec.json.encode(document)).decode())
    else:
        _print(verdicts)
        print_turns(screen(), turns)
    if any(each.violations for each in [*verdicts, *turns]):
        raise typer.Exit(1)


def _document(verdict: QueueVerdict) -> dict[str, object]:
    return {
        "queue": verdict.queue,
        "jobs": verdict.jobs,
        "claims": verdict.claims,
        "notes": verdict.notes,
        "violations": [
            {"position": str(each.position), "what": each.what} for each in verdict.violations
        ],
    }


def _print(verdicts: list[QueueVerdict]) -> None:
    table = Table("queue", "jobs", "claims", "verdict", box=None, pad_edge=False)
    for each in verdicts:
        word = f"{len(each.violations)} violations" if each.violations else "holds"
        table.add_row(escape(each.queue), f"{each.jobs:,}", f"{each.claims:,}", word)
    console = screen()
    console.print(table)
    for each in verdicts:
        for note in each.notes:
            console.print(escape(f"note: {each.queue}: {note}"))
        for found in each.violations[:_SHOWN_MAX]:
            console.print(escape(f"{found.position}: {found.what}"))
        if len(each.violations) > _SHOWN_MAX:
            console.print(f"{len(each.violations) - _SHOWN_MAX} more")
