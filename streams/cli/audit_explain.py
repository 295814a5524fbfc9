"""`harn audit explain`: what happened to one agent turn, as a tree for people or as JSON."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.tree import Tree

from streams.audit.explain_turn import READS, TurnStory, explain_turn
from streams.audit.happening import Happening
from streams.audit.kafka_log import KafkaLog
from streams.cli.cluster import cluster_of
from streams.cli.options import StateDir, notice, screen, settings_from
from streams.cli.plain import escape
from streams.core.clock import rfc3339
from streams.edge.codecs import codec_of
from streams.errors import ConfigError, TopologyError

__all__ = ["explain", "print_turn", "turn_as_json"]

_STYLES = {
    "completed": "green",
    "failed": "red",
    "expired": "yellow",
    "rejected": "yellow",
    "interrupted": "yellow",
    "skipped": "cyan",
    "dead-lettered": "red",
}
_DETAILS = (
    *("status", "attempt", "outcome", "record_status", "reason", "iteration_count", "error"),
    *("claimed_by", "owner_host", "executed_by", "fence", "pause_requested", "kill_requested"),
)


def explain(
    job_id: Annotated[str, typer.Argument(help="The job of an agent turn, as its handle says it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a turn.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Show what happened to one agent turn, and how long it waited, for what, and ran.

    What happened to an event is shown by `harn trigger explain`.

    Exit codes: 0 shown; 1 the log has nothing about it; 3 topics are missing; 5 no broker, or this
    user may not read.
    """
    if not job_id.strip():
        raise ConfigError("the job's id is blank, expected that of a turn")
    settings = cluster_of(settings_from(state_dir=state_dir))
    with KafkaLog(settings) as log:
        hidden = [topic for topic in READS if topic not in log.topic_names()]
        if hidden:
            raise TopologyError(
                [f"topic {topic} does not exist, or may not be seen" for topic in hidden],
                remedy="run `harn topology apply`, or grant what `harn topology acls` prints",
            )
        stories = explain_turn(log, codec_of(settings), job_id)
    if not stories:
        notice(f"the log has nothing about job {job_id}")
        raise typer.Exit(1)
    for story in stories:
        if as_json:
            typer.echo(msgspec.json.encode(turn_as_json(story)).decode())
        else:
            print_turn(screen(), story)


def print_turn(console: Console, story: TurnStory) -> None:
    """Print the tree: each step with the time since it was enqueued, and where that went."""
    style = _STYLES.get(story.outcome, "bold")
    session = "" if story.envelope is None else f" of session {escape(story.envelope.session_id)}"
    tree = Tree(
        f"[bold]{escape(story.job_id)}[/]{session} [{style}]{story.outcome}[/] "
        f"[dim]{story.position}[/]"
    )
    first_ms = story.enqueued_ms
    if first_ms is not None:
        details = "" if story.envelope is None else f" priority={story.envelope.priority}"
        tree.add(f"{rfc3339(first_ms)} enqueued{details}")
    for each in story.happenings:
        tree.add(_line(each, each.at_ms if first_ms is None else first_ms))
    if spent := _spent(story):
        tree.add(escape(spent))
    console.print(tree)


def _line(happening: Happening, first_ms: int) -> str:
    value = happening.value
    told = [f"{name}={value[name]}" for name in _DETAILS if value.get(name) not in (None, "")]
    after = f"+{(happening.at_ms - first_ms) / 1000:.3f} s"
    line = " ".join([f"{after:>12}", happening.kind, *told])
    return f"{escape(line)} [dim]{happening.position}[/]"


def _spent(story: TurnStory) -> str:
    parts: list[str] = []
    if story.waited_ms is not None:
        parts.append(f"waited {story.waited_ms / 1000:.3f} s")
        if story.ahead is not None:
            behind_ms = min(story.behind_ms, story.waited_ms)
            parts[-1] += f", {behind_ms / 1000:.3f} s of it behind {story.ahead[0]} of its session"
    if story.ran_ms is not None:
        parts.append(f"ran {story.ran_ms / 1000:.3f} s")
    return "; ".join(parts)


def turn_as_json(story: TurnStory) -> dict[str, Any]:
    """Return the story as one JSON object."""
    return {
        "job_id": story.job_id,
        "position": str(story.position),
        "outcome": story.outcome,
        "envelope": None if story.envelope is None else story.envelope.json_fields(),
        "enqueued_at": None if story.enqueued_ms is None else rfc3339(story.enqueued_ms),
        "waited_ms": story.waited_ms,
        "behind": None if story.ahead is None else story.ahead[0],
        "behind_ms": story.behind_ms,
        "ran_ms": story.ran_ms,
        "happenings": [
            {
                "at": rfc3339(each.at_ms),
                "position": str(each.position),
                "kind": each.kind,
                "value": {
                    name: found.hex() if isinstance(found, bytes) else found
                    for name, found in each.value.items()
                },
            }
            for each in story.happenings
        ],
    }
